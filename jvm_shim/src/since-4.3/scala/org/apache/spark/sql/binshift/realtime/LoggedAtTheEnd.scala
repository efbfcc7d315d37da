package org.apache.spark.sql.binshift.realtime

import org.apache.spark.sql.binshift.internals.StreamLogs
import org.apache.spark.sql.execution.streaming.runtime.{MicroBatchExecution, MicroBatchExecutionContext}
import org.apache.spark.sql.execution.streaming.state.binshift.checkpoint.{EntryName, RunHistory}
import org.apache.spark.sql.execution.streaming.state.binshift.routing.RoutingEntry
import org.apache.spark.sql.internal.SQLConf

/**
 * For real-time mode, in which an epoch is logged when it ends, with what its own context has then: the name of its own entry. The
 * next epoch's number of partitions is set in the next context, once this epoch is in the log.
 *
 * @param atBoundary gives the entry that the next batch uses, right before the batch begins
 */
private[realtime] final class LoggedAtTheEnd(query: MicroBatchExecution, atBoundary: () => Option[RoutingEntry])
  extends EpochSettings {
  BatchBoundary.observe(query)(begin)

  override def tell(now: RoutingEntry, next: Option[RoutingEntry]): Unit = {
    StreamLogs.setNextConf(query, EntryName.Key -> now.name.render)
    StreamLogs.setNextConf(query, RunHistory.Key -> query.runId.toString)
  }

  private def begin(context: MicroBatchExecutionContext): Unit = atBoundary().foreach { entry =>
    context.offsetSeqMetadata = StreamLogs.withConf(
      context.offsetSeqMetadata, SQLConf.SHUFFLE_PARTITIONS.key -> entry.table.partitions.toString)
  }
}
