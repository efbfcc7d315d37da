package org.apache.spark.sql.execution.streaming.state.binshift.storage

import java.io.OutputStream

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path

import org.apache.spark.sql.execution.streaming.checkpointing.{CheckpointFileManager, FileSystemBasedCheckpointFileManager}
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager.CancellableFSDataOutputStream
import org.apache.spark.sql.execution.streaming.state.{LineageItem, RocksDBFileManager, StateStoreChangelogWriter, StateStoreChangelogWriterV1}

/** The files of a version in Spark 4.1. */
private[binshift] trait VersionedFiles extends RocksDBFileManager {
  protected def directory: Path
  protected def hadoop: Configuration

  /** The version that has no changelog. Used by the thread that has the store. */
  private var silent: Option[Long] = None

  def beSilent(version: Option[Long]): Unit = silent = version

  override def getChangeLogWriter(
      version: Long, useColumnFamilies: Boolean, checkpointUniqueId: Option[String],
      lineage: Option[Array[LineageItem]]): StateStoreChangelogWriter =
    if (silent.contains(version)) {
      // A writer makes the directory of its file, which the snapshot needs, too.
      CheckpointFileManager.create(directory, hadoop).mkdirs(directory)
      new NoChangelog(directory, hadoop)
    } else super.getChangeLogWriter(version, useColumnFamilies, checkpointUniqueId, lineage)
}

/**
 * Takes changes and writes no file.
 *
 * Relies on Spark: the form of the first version writes nothing when it is made.
 */
private final class NoChangelog(directory: Path, hadoopConf: Configuration)
  extends StateStoreChangelogWriterV1(new WritesNothing(directory, hadoopConf), directory, AsItIs) {

  override def put(key: Array[Byte], value: Array[Byte]): Unit = ()
  override def delete(key: Array[Byte]): Unit = ()
  override def merge(key: Array[Byte], value: Array[Byte]): Unit = ()
  override def commit(): Unit = abort()
}

private final class WritesNothing(directory: Path, hadoopConf: Configuration)
  extends FileSystemBasedCheckpointFileManager(directory, hadoopConf) {

  override def createAtomic(path: Path, overwriteIfPossible: Boolean): CancellableFSDataOutputStream =
    new CancellableFSDataOutputStream(OutputStream.nullOutputStream()) {
      override def cancel(): Unit = ()
    }
}
