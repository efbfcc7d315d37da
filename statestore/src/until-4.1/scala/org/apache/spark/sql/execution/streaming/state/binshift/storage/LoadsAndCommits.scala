package org.apache.spark.sql.execution.streaming.state.binshift.storage

import org.apache.spark.sql.execution.streaming.state.{RocksDB, StateStoreCheckpointInfo}

/**
 * How versions are loaded and committed in Spark 4.1, which can only load what is in the checkpoint.
 *
 * To begin empty at a later version, this loads version 0, which is empty, and gives it the other number. Its commit uploads a whole
 * snapshot and makes no changelog, as it does since Spark 4.2. So both versions of Spark leave the same files in the checkpoint.
 *
 * Relies on Spark: version 0 is empty and needs no file; a load of the version that is loaded keeps the content and opens a
 * changelog; a commit that is forced to make a snapshot uploads it before it ends the changelog; nobody writes a changelog
 * when a load begins.
 */
private[binshift] trait LoadsAndCommits extends RocksDB {

  OpenDatabases.add(this)

  /** @param loadEmpty whether to begin without content, whatever the checkpoint has */
  def loadAt(version: Long, stateStoreCkptId: Option[String], readOnly: Boolean, loadEmpty: Boolean): RocksDB

  /** @param forceSnapshot always false in Spark 4.1 */
  def commitVersion(forceSnapshot: Boolean): (Long, StateStoreCheckpointInfo)

  override def load(version: Long, stateStoreCkptId: Option[String], readOnly: Boolean): RocksDB =
    loadAt(version, stateStoreCkptId, readOnly, loadEmpty = false)

  override def commit(): (Long, StateStoreCheckpointInfo) = commitVersion(forceSnapshot = false)

  protected final def loadBySpark(
      version: Long, stateStoreCkptId: Option[String], readOnly: Boolean, loadEmpty: Boolean): Unit = {
    // Spark keeps the changelog of an interrupted task, which has ended, and a replay would write to it (SPARK-54585, fixed in 4.2).
    RocksDBFields.endChangelog(this)
    if (loadEmpty) loadNothing(version)
    else {
      files.beSilent(None)
      super.load(version, stateStoreCkptId, readOnly)
    }
  }

  protected final def commitBySpark(forceSnapshot: Boolean): (Long, StateStoreCheckpointInfo) = super.commit()

  private def loadNothing(version: Long): Unit = {
    // The database may have been loaded as version 0 and changed since. Without this, the load below would keep its content.
    super.rollback()
    files.beSilent(Some(version + 1))
    super.load(0, None, readOnly = true)
    loadedVersion = version
    super.load(version, None, readOnly = false)
    RocksDBFields.forceSnapshot(this)
  }

  private def files: VersionedFiles = fileManager.asInstanceOf[VersionedFiles]
}

private[storage] object LoadsAndCommits {
  /** The field of `RocksDB` with the version of the last snapshot. */
  val LastSnapshot = "lastSnapshotVersion"
}
