package org.apache.spark.sql.execution.streaming.state.binshift.conversion

import java.io.File

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path

import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.execution.streaming.state.binshift.storage.{LoadsAndCommits, RocksDBArguments, VersionedFiles}

/** Reads whole partitions, and writes them from scratch, in Spark 4.1. */
private[binshift] object WholeStore {
  /** The rows of a family; several values of one key follow one another. */
  def rows(store: ReadStateStore, family: String, isMultiValued: Boolean): Iterator[UnsafeRowPair] =
    if (!isMultiValued) store.iterator(family)
    else store.iterator(family).flatMap { first =>
      val key = first.key.copy()
      store.valuesIterator(key, family).map(new UnsafeRowPair(key, _))
    }

  /** A provider for stores that are written from scratch, always in the form of Spark's RocksDB, whatever `conf` names; not initialized. */
  def provider(conf: StateStoreConf): StateStoreProvider = new EmptyStores

  /** The store of such a provider at `version`, without content; its commit makes a whole snapshot of the next one. */
  def empty(provider: StateStoreProvider, version: Long): StateStore = provider.getStore(version, None)
}

/** Spark's provider of RocksDB, with stores that begin without content. */
private final class EmptyStores extends RocksDBStateStoreProvider {
  override protected def createRocksDB(
      dfsRootDir: String, conf: RocksDBConf, localRootDir: File, hadoopConf: Configuration, loggingId: String,
      useColumnFamilies: Boolean, enableStateStoreCheckpointIds: Boolean, partitionId: Int,
      eventForwarder: Option[RocksDBEventForwarder], uniqueId: Option[String]): RocksDB =
    new EmptyRocksDB(RocksDBArguments(dfsRootDir, conf, localRootDir, hadoopConf, loggingId, useColumnFamilies,
        enableStateStoreCheckpointIds, partitionId, eventForwarder, uniqueId))
}

private final class EmptyRocksDB(arguments: RocksDBArguments)
  extends RocksDB(arguments.dfsRootDir, arguments.conf, arguments.localRootDir, arguments.hadoopConf, arguments.loggingId,
    arguments.useColumnFamilies, arguments.enableStateStoreCheckpointIds, arguments.partitionId, arguments.eventForwarder,
    arguments.uniqueId)
  with LoadsAndCommits {

  override def loadAt(version: Long, id: Option[String], readOnly: Boolean, loadEmpty: Boolean): RocksDB = {
    loadBySpark(version, id, readOnly, loadEmpty = true)
    this
  }

  override def commitVersion(forceSnapshot: Boolean): (Long, StateStoreCheckpointInfo) = commitBySpark(forceSnapshot)

  override protected def createFileManager(root: String, local: File, hadoopConf: Configuration, codec: String,
      loggingId: String, storeConf: StateStoreConf): RocksDBFileManager =
    new EmptyFiles(root, local, hadoopConf, codec, loggingId, storeConf, conf.fileChecksumEnabled, fileChecksumThreadPoolSize)
}

private final class EmptyFiles(root: String, local: File, hadoopConf: Configuration, codec: String, loggingId: String,
    storeConf: StateStoreConf, fileChecksumEnabled: Boolean, fileChecksumThreads: Option[Int])
  extends RocksDBFileManager(root, local, hadoopConf, codec, loggingId, storeConf, fileChecksumEnabled, fileChecksumThreads)
  with VersionedFiles {
  override protected def directory: Path = new Path(root)
  override protected def hadoop: Configuration = hadoopConf
}
