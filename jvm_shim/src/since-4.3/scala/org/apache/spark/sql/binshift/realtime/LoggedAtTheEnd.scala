package org.apache.spark.sql.binshift.realtime

import org.apache.spark.sql.binshift.internals.StreamLogs
import org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution
import org.apache.spark.sql.execution.streaming.state.binshift.checkpoint.{EntryName, RunHistory}
import org.apache.spark.sql.execution.streaming.state.binshift.routing.RoutingEntry
import org.apache.spark.sql.internal.SQLConf

/**
 * For real-time mode, in which an epoch is logged when it ends, with what its own context has then: the name of its own entry. The
 * next epoch's number of partitions is set in the next context, once this epoch is in the log.
 */
private[realtime] final class LoggedAtTheEnd(query: MicroBatchExecution) extends TaskSlots(query) {
  override def isRealTime: Boolean = true

  override def newestLogged(epoch: Long): Long = epoch - 1

  override def loggedAtMs: Option[Long] = None

  override def begin(due: () => Option[RoutingEntry]): Unit = BatchBoundary.observe(query) { context =>
    due().foreach { entry =>
      context.offsetSeqMetadata = StreamLogs.withConf(
        context.offsetSeqMetadata, SQLConf.SHUFFLE_PARTITIONS.key -> entry.table.partitions.toString)
    }
  }

  override def tell(now: RoutingEntry, next: Option[RoutingEntry]): Unit = {
    StreamLogs.setNextConf(query, EntryName.Key -> now.name.render)
    StreamLogs.setNextConf(query, RunHistory.Key -> query.runId.toString)
  }
}
