package org.apache.spark.sql.binshift.realtime

import org.apache.spark.sql.execution.SparkPlan

/** Task slots of a query in real-time mode, all of whose tasks run at once. Any thread. */
private[binshift] trait Slots {

  /**
   * Notes the plan of a batch.
   *
   * @param plan   the plan as Spark made it
   * @param binned ids of the operators whose state follows the routing table
   */
  def note(plan: SparkPlan, binned: Set[Long]): Unit

  /**
   * The reason why Spark would not run a batch with `n` state partitions without the slots of `leaving`; `None` if it would. There
   * is never a reason if the batch takes no more slots than one with `now` partitions. Fewer partitions may take more slots,
   * because Spark omits an exchange only for the number of partitions for which it isn't needed.
   *
   * @param leaving executors on which no state should be, including those that are gone
   */
  def reasonAgainst(n: Int, now: Int, leaving: Set[String]): Option[String]

  /** Throws if [[reasonAgainst]] gives a reason. */
  def requireRoomFor(n: Int, now: Int, leaving: Set[String]): Unit

  /** Throws if a batch with `n` state partitions would need slots of `executors`. */
  def requireRoomWithout(executors: Set[String], n: Int): Unit
}
