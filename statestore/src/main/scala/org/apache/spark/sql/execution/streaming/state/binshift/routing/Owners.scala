package org.apache.spark.sql.execution.streaming.state.binshift.routing

/**
 * Who owned which bin, by the entries of the routing log.
 *
 * The content of version v is what epoch v - 1 left, and so goes by the table in force at v - 1: what arrives at the switch
 * of epoch e is in versions from e + 1 on.
 *
 * Thread-safe, for the stores of an executor that recover at the same time: an entry is read once for all of them. An entry
 * has the tables of many before it, so that what is read does not grow with the number of steps.
 *
 * @param epochs those of all entries up to some version, ascending
 * @param entry  reads the entry of an epoch
 */
private[binshift] final class Owners(val epochs: IndexedSeq[Long], entry: Long => RoutingEntry) {
  import Owners._

  require(epochs.nonEmpty, "there is no entry of the routing log")

  private val known = new Array[Known](epochs.size)

  /** The position of the table that the content of `version` goes by. */
  def at(version: Long): Int = epochs.lastIndexWhere(_ < version)

  def table(position: Int): RoutingTable = read(position).table

  /** The epoch at which the table at `position` came into force. */
  def epoch(position: Int): Long = epochs(position)

  /** Whether there was nothing before the table at `position`. */
  def isFirst(position: Int): Boolean = position == 0 && epochs(0) == 0 && read(0).isFirst

  /**
   * Whether any of the bins that `isWanted` came to or left `partition` at an epoch from `first` to `last`; also if that is
   * not known, since the entry before has been deleted.
   */
  def changed(partition: Int, first: Long, last: Long, isWanted: Int => Boolean): Boolean =
    first <= epochs(0) && !isFirst(0) || epochs.indices.drop(1).filter(i => epochs(i) >= first && epochs(i) <= last).exists { i =>
      val (before, now) = (table(i - 1).owners, table(i).owners)
      before.indices.exists(bin => isWanted(bin) && (before(bin) == partition) != (now(bin) == partition))
    }

  private def read(position: Int): Known = {
    // What another thread has just put here may be seen or not; it is immutable.
    Option(known(position)).getOrElse(synchronized {
      while (known(position) == null) readNewest()
      known(position)
    })
  }

  /** Reads the newest entry whose table is not known, and what it tells of those before it. */
  private def readNewest(): Unit = {
    val newest = known.lastIndexWhere(_ == null)
    val found = entry(epochs(newest))
    known(newest) = Known(found.table, found.step.isEmpty)
    // Where the log has other entries than this one came after, they are read: what is wrong is noticed then.
    found.tablesBefore.zip((newest - 1 to 0 by -1).iterator)
      .takeWhile { case ((earlier, _), position) =>
        epochs(position) == earlier.epoch &&
        (position == 0 || earlier.previous < 0 || epochs(position - 1) == earlier.previous)
      }
      .foreach { case ((earlier, table), position) =>
        known(position) = Known(table, earlier.previous == RoutingEntry.First)
      }
  }
}

private object Owners {
  /** @param isFirst whether the table came from no step */
  private final case class Known(table: RoutingTable, isFirst: Boolean)
}
