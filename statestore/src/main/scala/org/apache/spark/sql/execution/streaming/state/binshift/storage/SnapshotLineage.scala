package org.apache.spark.sql.execution.streaming.state.binshift.storage

import org.apache.spark.sql.execution.streaming.state.{LineageItem, RocksDBLineageManager}

/**
 * The versions and ids from a store's last snapshot to its loaded version, under checkpoint format 2. Each changelog names the ones
 * before it, and a load begins with a snapshot among those.
 *
 * Spark cuts them at each snapshot that was uploaded. But that snapshot may be of an attempt that doesn't count, because the task or
 * the stage ran again while it was on its way. Then no version that is named afterwards has a snapshot, and the state can't be loaded
 * until the next one is there. So uploads cut nothing here. The cut is made at the next commit, at the newest named version whose own
 * snapshot is in the checkpoint.
 *
 * Relies on Spark: an upload calls `truncateFromVersion` and nothing else, loads call `resetLineage`, and each commit calls
 * `appendLineageItem` once it has uploaded what it uploads itself.
 *
 * Thread-safe.
 *
 * @param hasSnapshot whether a snapshot of this version and id was uploaded as a whole, or loaded, by this store; makes no request
 */
private[binshift] final class SnapshotLineage(hasSnapshot: LineageItem => Boolean) extends RocksDBLineageManager {

  override def truncateFromVersion(versionToKeep: Long): Unit = ()

  override def appendLineageItem(item: LineageItem): Unit = synchronized {
    super.appendLineageItem(item)
    val named = getLineageForCurrVersion()
    val base = named.lastIndexWhere(hasSnapshot)
    if (base > 0) resetLineage(named.drop(base))
  }
}
