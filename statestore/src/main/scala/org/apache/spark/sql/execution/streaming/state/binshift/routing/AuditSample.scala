package org.apache.spark.sql.execution.streaming.state.binshift.routing

import scala.util.hashing.byteswap64

/** Draws the bins of a step that are audited. */
private[sql] object AuditSample {
  /** A bin has two bytes. */
  private val Bin = 0xffffL

  /**
   * Draws at most `n` of the bins that get another owner at `epoch`. The result depends on the two tables only, so the driver,
   * all stores and all attempts of a task draw the same bins; the next step draws others.
   */
  def of(before: RoutingTable, now: RoutingTable, epoch: Long, n: Int): Set[Int] =
    if (n >= now.bins) before.movedIn(now)
    else {
      // Cheap, because each task does this before it begins. A key has random upper bits, and the bin in its lower ones.
      val keys = before.movedIn(now).toArray.map(bin => (byteswap64((epoch << 16) + bin) & ~Bin) | bin)
      java.util.Arrays.sort(keys)
      keys.iterator.take(n).map(key => (key & Bin).toInt).toSet
    }
}
