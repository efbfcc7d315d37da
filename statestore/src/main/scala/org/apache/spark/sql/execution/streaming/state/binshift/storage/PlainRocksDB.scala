package org.apache.spark.sql.execution.streaming.state.binshift.storage

import java.io.File

import org.apache.hadoop.conf.Configuration

import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.execution.streaming.state.binshift.checkpoint.Savepoints

/**
 * Spark's RocksDB, for an operator whose rows don't follow a routing table. It differs in three things: it uses files that are on this
 * executor already, it uploads no snapshot of a version that a later run makes again, and it deletes no files of savepoints.
 *
 * @param isDisowned whether a later run makes a version again; called by tasks and maintenance threads
 */
private[binshift] final class PlainRocksDB(
    arguments: RocksDBArguments, here: FilesHere, isDisowned: (Long, Boolean) => Boolean, savepoints: Savepoints)
  extends RocksDB(arguments.dfsRootDir, arguments.conf, arguments.localRootDir, arguments.hadoopConf, arguments.loggingId,
    arguments.useColumnFamilies, arguments.enableStateStoreCheckpointIds, arguments.partitionId, arguments.eventForwarder,
    arguments.uniqueId)
  with LoadsAndCommits {

  private def files: WarmFileManager = fileManager.asInstanceOf[WarmFileManager]

  files.use(here, isDisowned, savepoints)

  /** Called by the constructor of `RocksDB`. */
  override protected def createFileManager(
      dfsRootDir: String, localTempDir: File, hadoopConf: Configuration, codecName: String,
      loggingId: String, storeConf: StateStoreConf): RocksDBFileManager =
    new WarmFileManager(dfsRootDir, localTempDir, hadoopConf, codecName, loggingId, storeConf,
      conf.fileChecksumEnabled, fileChecksumThreadPoolSize)

  override def loadAt(version: Long, stateStoreCkptId: Option[String], readOnly: Boolean, loadEmpty: Boolean): RocksDB = {
    files.loading(loadBySpark(version, stateStoreCkptId, readOnly, loadEmpty))
    this
  }

  override def commitVersion(forceSnapshot: Boolean): (Long, StateStoreCheckpointInfo) = {
    val committed = commitBySpark(forceSnapshot)
    files.proven()
    committed
  }

  override def rollback(): Unit = {
    files.rolledBack()
    super.rollback()
  }
}
