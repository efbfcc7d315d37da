package org.apache.spark.sql.binshift.realtime

import org.apache.spark.sql.binshift.internals.{SparkInternals, StreamLogs}
import org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution
import org.apache.spark.sql.execution.streaming.state.binshift.checkpoint.{EntryName, RunHistory}
import org.apache.spark.sql.execution.streaming.state.binshift.routing.RoutingEntry

/**
 * Tells Spark what to log with each epoch: the number of partitions, the name of the routing entry in force, and the run.
 *
 * Called on the stream's thread.
 */
private[binshift] trait EpochSettings {

  /**
   * Called while an epoch is planned.
   *
   * @param now  the entry in force at the epoch
   * @param next the entry that is durable for the epoch after it, if the table changes there
   */
  def tell(now: RoutingEntry, next: Option[RoutingEntry]): Unit
}

/** For modes in which an epoch is logged before it is planned. What Spark is told now is logged with the next epoch. */
private[realtime] final class LoggedAhead(query: MicroBatchExecution) extends EpochSettings {
  override def tell(now: RoutingEntry, next: Option[RoutingEntry]): Unit = {
    next.foreach(entry => SparkInternals.setNextPartitions(query, entry.table.partitions))
    StreamLogs.setNextConf(query, EntryName.Key -> next.getOrElse(now).name.render)
    StreamLogs.setNextConf(query, RunHistory.Key -> query.runId.toString)
  }
}
