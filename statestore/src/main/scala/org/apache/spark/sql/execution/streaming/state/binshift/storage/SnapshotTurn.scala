package org.apache.spark.sql.execution.streaming.state.binshift.storage

import java.util.Objects

import org.apache.spark.sql.execution.streaming.state.{RocksDB, StateStoreId}

/**
 * Decides when a store makes its snapshots: every `minDeltasForSnapshot` versions, as in Spark, but each partition at different versions.
 *
 * Spark counts from a store's last snapshot. So stores of an operator that begin together, or adopt bins together, always make their
 * snapshots together, and such an epoch waits until all have written out their memory. Here, a store makes its snapshots in its
 * turn instead. The turn depends only on the store, so another attempt of a version, wherever it runs, makes a snapshot of it as
 * well. If a store can't make one in its turn, it makes the next no later than after twice as many versions.
 *
 * In real-time mode, each store has a core of its own, and each boundary between batches waits for the slowest store. Then one
 * boundary at which all stores write is better than many at which one does, so all stores have the same turn.
 *
 * Relies on Spark: a commit makes a snapshot if it is forced, if there are no changelogs, or if so many versions have passed since
 * `lastSnapshotVersion`. It then sets that to its own version.
 *
 * Used by the thread that has the store.
 *
 * @param isShared whether all stores have the same turn
 */
private[binshift] final class SnapshotTurn(db: RocksDB, store: StateStoreId, isShared: Boolean) {
  import SnapshotTurn._

  private val every = math.max(1, db.conf.minDeltasForSnapshot)
  /** Consecutive partitions have consecutive turns, and the stores of one partition have different ones. */
  private val turn = if (isShared) 0L else store.partitionId.toLong + Objects.hash(Long.box(store.operatorId), store.storeName)
  private var isRequested = false
  private var hasJustAdopted = false

  /**
   * Called when the store has adopted bins, which only the checkpoints of other partitions contain until its next snapshot. Its next
   * commit belongs to the switch, which has enough to do. After that, it is the store's turn at one of ten versions.
   */
  def request(): Unit = {
    hasJustAdopted ||= !isRequested
    isRequested = true
  }

  /**
   * Runs `commit`, which makes a snapshot if it is the store's turn. Then runs `whenMade` if the snapshot was requested.
   *
   * @param version the version that is committed
   * @param isWhole whether all of the state is here. If not, no snapshot is made unless Spark forces one.
   */
  def commit[T](version: Long, isWhole: Boolean, whenMade: () => Unit = () => ())(commit: => T): T = {
    val last = RocksDBFields.lastSnapshot(db)
    val isDue = isWhole && (isTurn(version) || isLate(version))
    RocksDBFields.setLastSnapshot(db, if (isDue) version - every else version - 1)
    val result = commit
    hasJustAdopted = false
    if (RocksDBFields.lastSnapshot(db) == version) {
      if (isRequested) whenMade()
      isRequested = false
    } else RocksDBFields.setLastSnapshot(db, last)
    result
  }

  /** True if the last snapshot is so old, when `version` is committed, that another one is overdue: twice the usual distance. */
  def isLate(version: Long): Boolean = version - RocksDBFields.lastSnapshot(db) >= 2L * every

  private def isTurn(version: Long): Boolean =
    Math.floorMod(version + turn, if (isRequested && !hasJustAdopted) math.min(every, Soon) else every) == 0
}

private object SnapshotTurn {
  /** After so many versions, a store that has adopted bins makes a snapshot at the latest. */
  private val Soon = 10
}
