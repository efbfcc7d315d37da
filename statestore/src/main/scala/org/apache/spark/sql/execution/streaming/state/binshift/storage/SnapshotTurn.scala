package org.apache.spark.sql.execution.streaming.state.binshift.storage

import scala.collection.mutable

import org.apache.spark.sql.execution.streaming.state.RocksDB

/**
 * When a store makes its snapshots: every `minDeltasForSnapshot` versions, as Spark has it, but each store of an executor
 * at a version of its own.
 *
 * Spark counts from a store's last snapshot, so the stores of an operator, which begin together or adopt bins together, make
 * theirs together ever after, and that epoch waits until all have written what they hold in memory. A store makes its
 * snapshots when it is its turn instead. Where it came from another executor, with another turn, it has to wait no longer
 * than twice as many versions in all.
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
private[binshift] final class SnapshotTurn(db: RocksDB, isShared: Boolean) {
  import SnapshotTurn._

  private val every = math.max(1, db.conf.minDeltasForSnapshot)
  private lazy val turn = if (isShared) 0 else Turns.take(this, every)
  private var isRequested = false
  private var hasJustAdopted = false

  /**
   * The store has adopted bins, which until its next snapshot only the checkpoints of other partitions hold. Its next
   * commit is a switch's, which has enough to do; from then on each version is the turn of one of the executor's stores, or
   * every tenth that of all.
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

  def close(): Unit = Turns.leave(this)

  private def isTurn(version: Long): Boolean =
    Math.floorMod(version + turn, if (isRequested && !hasJustAdopted) soon else every) == 0

  private def soon: Int = math.min(every, if (isShared) Soon else math.min(Soon, math.max(1, Turns.count(every))))
}

private object SnapshotTurn {
  /** Versions after which a store that has adopted bins makes a snapshot at the latest, however many stores there are. */
  private val Soon = 10

  /** The turns of the stores that are open on this executor. */
  private object Turns {
    private val taken = mutable.Map.empty[SnapshotTurn, (Int, Int)]

    /** That of the turns 0 until `of` which fewest stores have that take as many turns. */
    def take(store: SnapshotTurn, of: Int): Int = synchronized {
      val stores = taken.values.toSeq.collect { case (t, `of`) => t }.groupMapReduce(identity)(_ => 1)(_ + _)
      val turn = (0 to math.min(of - 1, stores.size)).minBy(stores.getOrElse(_, 0))
      taken(store) = (turn, of)
      turn
    }

    def count(of: Int): Int = synchronized(taken.values.count(_._2 == of))

    def leave(store: SnapshotTurn): Unit = synchronized(taken -= store)
  }
}
