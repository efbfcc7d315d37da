package org.apache.spark.sql.execution.streaming.state.binshift.routing

/**
 * Who owned which bin, by the entries of the routing log.
 *
 * The content of version v is what epoch v - 1 left, and so goes by the table in force at v - 1: what arrives at the switch
 * of epoch e is in versions from e + 1 on.
 *
 * Thread-safe, for the stores of an executor that recover at the same time: an entry is read once for all of them.
 *
 * @param epochs those of all entries up to some version, ascending
 * @param entry  reads the entry of an epoch
 */
private[binshift] final class Owners(val epochs: IndexedSeq[Long], entry: Long => RoutingEntry) {
  require(epochs.nonEmpty, "there is no entry of the routing log")

  private val entries = new Array[RoutingEntry](epochs.size)

  /** The position of the table that the content of `version` goes by. */
  def at(version: Long): Int = epochs.lastIndexWhere(_ < version)

  def table(position: Int): RoutingTable = read(position).table

  /** The epoch at which the table at `position` came into force. */
  def epoch(position: Int): Long = epochs(position)

  /** The positions of tables that replaced another one at epoch `first` or later, ascending. */
  def changes(first: Long): Seq[Int] = epochs.indices.drop(1).filter(epochs(_) >= first)

  /** Whether there was nothing before the table at `position`. */
  def isFirst(position: Int): Boolean = position == 0 && epochs(0) == 0 && read(0).step.isEmpty

  /**
   * Whether any of the bins that `isWanted` came to or left `partition` at an epoch from `first` to `last`; also if that is
   * not known, since the entry before has been deleted.
   */
  def changed(partition: Int, first: Long, last: Long, isWanted: Int => Boolean): Boolean =
    first <= epochs(0) && !isFirst(0) || epochs.indices.drop(1).filter(i => epochs(i) >= first && epochs(i) <= last).exists { i =>
      val (before, now) = (table(i - 1).owners, table(i).owners)
      before.indices.exists(bin => isWanted(bin) && (before(bin) == partition) != (now(bin) == partition))
    }

  private def read(position: Int): RoutingEntry = {
    // An entry that another thread has just put here may be seen or not; it is immutable.
    Option(entries(position)).getOrElse(synchronized {
      if (entries(position) == null) entries(position) = entry(epochs(position))
      entries(position)
    })
  }
}
