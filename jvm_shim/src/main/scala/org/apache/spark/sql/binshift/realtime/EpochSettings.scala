package org.apache.spark.sql.binshift.realtime

import org.apache.spark.sql.binshift.internals.SparkInternals
import org.apache.spark.sql.execution.streaming.runtime.{MicroBatchExecution, MicroBatchExecutionContext}
import org.apache.spark.sql.execution.streaming.state.binshift.checkpoint.{EntryName, RunHistory}
import org.apache.spark.sql.execution.streaming.state.binshift.routing.RoutingEntry
import org.apache.spark.sql.internal.SQLConf

/**
 * Tells Spark what to log with each epoch: the number of partitions, the name of the routing entry in force, and the run.
 *
 * Called on the stream's thread.
 */
private[binshift] sealed trait EpochSettings {

  /**
   * Called while an epoch is planned.
   *
   * @param now  the entry in force at the epoch
   * @param next the entry that is durable for the epoch after it, if the table changes there
   */
  def tell(now: RoutingEntry, next: Option[RoutingEntry]): Unit
}

private[binshift] object EpochSettings {

  /** @param atBoundary gives the entry that the next batch takes, right before it is begun, in real-time mode */
  def of(query: MicroBatchExecution)(atBoundary: () => Option[RoutingEntry]): EpochSettings =
    if (RealTimeMode.isOf(query)) new LoggedAtTheEnd(query, atBoundary) else new LoggedAhead(query)
}

/** An epoch is in the log before it is planned: what is told now is logged with the next one. */
private final class LoggedAhead(query: MicroBatchExecution) extends EpochSettings {
  override def tell(now: RoutingEntry, next: Option[RoutingEntry]): Unit = {
    next.foreach(entry => SparkInternals.setNextPartitions(query, entry.table.partitions))
    SparkInternals.setNextConf(query, EntryName.Key -> next.getOrElse(now).name.render)
    SparkInternals.setNextConf(query, RunHistory.Key -> query.runId.toString)
  }
}

/**
 * An epoch is logged when it ends, with what its own context has then: the name of its own entry. The partitions of the
 * next one are given to its context, once the log has those of this one.
 */
private final class LoggedAtTheEnd(query: MicroBatchExecution, atBoundary: () => Option[RoutingEntry]) extends EpochSettings {
  BatchBoundary.observe(query)(begin)

  override def tell(now: RoutingEntry, next: Option[RoutingEntry]): Unit = {
    SparkInternals.setNextConf(query, EntryName.Key -> now.name.render)
    SparkInternals.setNextConf(query, RunHistory.Key -> query.runId.toString)
  }

  private def begin(context: MicroBatchExecutionContext): Unit = atBoundary().foreach { entry =>
    context.offsetSeqMetadata = SparkInternals.withConf(
      context.offsetSeqMetadata, SQLConf.SHUFFLE_PARTITIONS.key -> entry.table.partitions.toString)
  }
}
