package org.apache.spark.sql.binshift.realtime

import org.apache.spark.sql.execution.SparkPlan

/** Task slots of a query in real-time mode, all of whose tasks run at once. Any thread. */
private[binshift] trait Slots {

  /**
   * @param plan   of a batch, as Spark made it
   * @param binned ids of the operators whose state follows the routing table
   */
  def note(plan: SparkPlan, binned: Set[Long]): Unit

  /**
   * Why a batch with `n` state partitions would not be run, or not without slots of `leaving`, if it would not. Never if it
   * takes no more slots than one with `now`. Fewer partitions may take more: Spark plans an exchange that is of no use with
   * one number only.
   *
   * @param leaving executors on which no state is to be, also if they are gone
   */
  def reasonAgainst(n: Int, now: Int, leaving: Set[String]): Option[String]

  /** Throws if there is a reason against it. */
  def requireRoomFor(n: Int, now: Int, leaving: Set[String]): Unit

  /** Throws if a batch with `n` state partitions would need slots of `executors`. */
  def requireRoomWithout(executors: Set[String], n: Int): Unit
}
