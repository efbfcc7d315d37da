package org.apache.spark.sql.binshift.realtime

import org.apache.spark.sql.binshift.internals.StreamLogs
import org.apache.spark.sql.execution.streaming.runtime.{MicroBatchExecution, MicroBatchExecutionContext}
import org.apache.spark.sql.execution.streaming.state.binshift.checkpoint.{EntryName, RunHistory}
import org.apache.spark.sql.execution.streaming.state.binshift.routing.RoutingEntry
import org.apache.spark.sql.internal.SQLConf

/**
 * An epoch is logged when it ends, with what its own context has then: the name of its own entry. The partitions of the
 * next one are given to its context, once the log has those of this one.
 *
 * @param atBoundary gives the entry that the next batch takes, right before it is begun
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
