package org.apache.spark.sql.execution.streaming.state.binshift.storage

import org.apache.spark.sql.execution.streaming.state.{RocksDB, RocksDBFileManager, StateStoreCheckpointInfo}

/** How versions are loaded and committed since Spark 4.2, which can begin with an empty database at any version. */
private[binshift] trait LoadsAndCommits extends RocksDB {

  OpenDatabases.add(this)

  /** @param loadEmpty whether to begin without content, whatever the checkpoint has */
  def loadAt(version: Long, stateStoreCkptId: Option[String], readOnly: Boolean, loadEmpty: Boolean): RocksDB

  def commitVersion(forceSnapshot: Boolean): (Long, StateStoreCheckpointInfo)

  override def load(
      version: Long, stateStoreCkptId: Option[String], readOnly: Boolean, loadEmpty: Boolean): RocksDB =
    loadAt(version, stateStoreCkptId, readOnly, loadEmpty)

  override def commit(forceSnapshot: Boolean): (Long, StateStoreCheckpointInfo) = commitVersion(forceSnapshot)

  protected final def loadBySpark(
      version: Long, stateStoreCkptId: Option[String], readOnly: Boolean, loadEmpty: Boolean): Unit =
    super.load(version, stateStoreCkptId, readOnly, loadEmpty)

  protected final def commitBySpark(forceSnapshot: Boolean): (Long, StateStoreCheckpointInfo) = super.commit(forceSnapshot)
}

private[storage] object LoadsAndCommits {
  /** The field of `RocksDB` with the version of the last snapshot, which its closures use, too. */
  val LastSnapshot: String = s"${classOf[RocksDB].getName.replace('.', '$')}$$$$lastSnapshotVersion"
}

/** The files of a version since Spark 4.2. */
private[binshift] trait VersionedFiles extends RocksDBFileManager
