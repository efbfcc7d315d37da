package org.apache.spark.sql.binshift.realtime

import org.apache.spark.sql.binshift.internals.{SparkInternals, StreamLogs}
import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution
import org.apache.spark.sql.execution.streaming.state.binshift.checkpoint.{EntryName, RunHistory}
import org.apache.spark.sql.execution.streaming.state.binshift.routing.RoutingEntry

/**
 * When Spark logs the epochs of a query, what it is told to log with them, and how many tasks of one run at once. A run chooses its
 * protocol once ([[RealTimeMode.protocolOf]]).
 *
 * Epochs are entered on the stream's thread; any thread may ask about slots.
 */
private[binshift] trait EpochProtocol {

  /** True if an epoch is logged when it ends, and all of its tasks run at once. */
  def isRealTime: Boolean

  /** The newest epoch in the log of offsets while `epoch` is planned. */
  def newestLogged(epoch: Long): Long

  /** When the epoch that is being planned was logged, if it was. */
  def loggedAtMs: Option[Long]

  /**
   * Called while the first epoch of the run is planned.
   *
   * @param due gives the entry that the next epoch uses, right before that begins, if it may still be taken back until then
   */
  def begin(due: () => Option[RoutingEntry]): Unit

  /**
   * Tells Spark what to log: the number of partitions, the name of the routing entry in force, and the run. Called while an epoch is
   * planned.
   *
   * @param now  the entry in force at the epoch
   * @param next the entry that is durable for the epoch after it, if the table changes there
   */
  def tell(now: RoutingEntry, next: Option[RoutingEntry]): Unit

  /**
   * Notes the plan of an epoch.
   *
   * @param plan   the plan as Spark made it
   * @param binned ids of the operators whose state follows the routing table
   */
  def note(plan: SparkPlan, binned: Set[Long]): Unit = ()

  /**
   * The reason why Spark would not run an epoch with `n` state partitions without the slots of `leaving`; `None` if it would. There
   * is never a reason if the epoch takes no more slots than one with `now` partitions. Fewer partitions may take more slots,
   * because Spark omits an exchange only for the number of partitions for which it isn't needed.
   *
   * @param leaving executors on which no state should be, including those that are gone
   */
  def reasonAgainst(n: Int, now: Int, leaving: Set[String]): Option[String] = None

  /** Throws if [[reasonAgainst]] gives a reason. */
  def requireRoomFor(n: Int, now: Int, leaving: Set[String]): Unit = ()

  /** Throws if an epoch with `n` state partitions would need slots of `executors`. */
  def requireRoomWithout(executors: Set[String], n: Int): Unit = ()
}

/** For modes in which an epoch is logged before it is planned. What Spark is told now is logged with the next epoch. */
private[realtime] final class LoggedAhead(query: MicroBatchExecution) extends EpochProtocol {
  override def isRealTime: Boolean = false

  override def newestLogged(epoch: Long): Long = epoch

  override def loggedAtMs: Option[Long] = Some(StreamLogs.plannedAtMs(query))

  override def begin(due: () => Option[RoutingEntry]): Unit = ()

  override def tell(now: RoutingEntry, next: Option[RoutingEntry]): Unit = {
    next.foreach(entry => SparkInternals.setNextPartitions(query, entry.table.partitions))
    StreamLogs.setNextConf(query, EntryName.Key -> next.getOrElse(now).name.render)
    StreamLogs.setNextConf(query, RunHistory.Key -> query.runId.toString)
  }
}
