package org.apache.spark.sql.execution.streaming.state.binshift.routing

import scala.util.hashing.byteswap64

/** Which of the bins that a step moves are audited. */
private[sql] object AuditSample {
  /** Bins have two bytes. */
  private val Bin = 0xffffL

  /**
   * At most `n` of the bins that another partition owns from `epoch` on. They follow from the two tables alone, so that the driver,
   * all stores and all attempts of a task draw the same ones, and other ones at the next step.
   */
  def of(before: RoutingTable, now: RoutingTable, epoch: Long, n: Int): Set[Int] =
    if (n >= now.bins) before.movedIn(now)
    else {
      // A task draws them before it begins; the upper bits are random, and the lower ones are the bin.
      val keys = before.movedIn(now).toArray.map(bin => (byteswap64((epoch << 16) + bin) & ~Bin) | bin)
      java.util.Arrays.sort(keys)
      keys.iterator.take(n).map(key => (key & Bin).toInt).toSet
    }
}
