package org.apache.spark.sql.execution.streaming.state.binshift.storage

import java.util.Objects

import org.apache.spark.sql.execution.streaming.state.{RocksDB, StateStoreId}

/**
 * When a store makes its snapshots: every `minDeltasForSnapshot` versions, as Spark has it, but each partition at versions of its own.
 *
 * Spark counts from a store's last snapshot, so the stores of an operator, which begin together or adopt bins together, make
 * theirs together ever after, and that epoch waits until all have written what they hold in memory. A store makes its
 * snapshots when it is its turn instead, which only depends on the store: another attempt of a version, wherever it runs, makes a
 * snapshot of it as well. Where none could be made at its turn, it waits no longer than twice as many versions in all.
 *
 * In real-time mode each store has a core of its own, and all boundaries between batches wait for the slowest one. There, one
 * boundary at which all stores write is less than many at which one does, so that all have the same turn.
 *
 * Relies on Spark: a commit makes a snapshot if it is forced, if there are no changelogs, or if so many versions have
 * passed since `lastSnapshotVersion`, to which it then sets its own.
 *
 * Used by the thread that has the store.
 *
 * @param isShared whether all stores have the same turn
 */
private[binshift] final class SnapshotTurn(db: RocksDB, store: StateStoreId, isShared: Boolean) {
  import SnapshotTurn._

  private val every = math.max(1, db.conf.minDeltasForSnapshot)
  /** Partitions that follow each other have turns that do; stores of one partition do not all have the same. */
  private val turn = if (isShared) 0L else store.partitionId.toLong + Objects.hash(Long.box(store.operatorId), store.storeName)
  private var isRequested = false
  private var hasJustAdopted = false

  /**
   * The store has adopted bins, which until its next snapshot only the checkpoints of other partitions hold. Its next
   * commit is a switch's, which has enough to do; from then on it is the store's turn at one of ten versions.
   */
  def request(): Unit = {
    hasJustAdopted ||= !isRequested
    isRequested = true
  }

  /**
   * Runs `commit`, which makes a snapshot if it is the store's turn, and then `whenMade` if that is one that was requested.
   *
   * @param version what is committed
   * @param isWhole whether all of the state is there; without, there is no snapshot unless Spark forces one
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

  /** Whether a snapshot has waited for as long as snapshots are apart, when `version` is committed. */
  def isLate(version: Long): Boolean = version - RocksDBFields.lastSnapshot(db) >= 2L * every

  private def isTurn(version: Long): Boolean =
    Math.floorMod(version + turn, if (isRequested && !hasJustAdopted) math.min(every, Soon) else every) == 0
}

private object SnapshotTurn {
  /** Versions after which a store that has adopted bins makes a snapshot at the latest, however many stores there are. */
  private val Soon = 10
}
