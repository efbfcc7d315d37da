package org.apache.spark.sql.binshift.realtime

import org.apache.spark.sql.execution.SparkPlan

/** Task slots of a query in real-time mode, all of whose tasks run at once. Any thread. */
private[binshift] trait Slots {

  /**
   * @param plan   of a batch, as it is run
   * @param binned ids of the operators whose state follows the routing table
   */
  def note(plan: SparkPlan, binned: Set[Long]): Unit

  /** Why a batch with `n` state partitions would not be run, if it would not. */
  def reasonAgainst(n: Int): Option[String]

  /** Throws if a batch with `n` state partitions would not be run. */
  def requireRoomFor(n: Int): Unit
}
