package org.apache.spark.sql.binshift.realtime

import org.apache.spark.sql.execution.streaming.runtime.{MicroBatchExecution, MicroBatchExecutionContext, TriggerExecutor}

/**
 * Hooks into the moment at which one batch is committed and nothing of the next batch is decided.
 *
 * In real-time mode, Spark logs a batch when it ends, with the settings that its context has then. So the settings with which the
 * next batch should be planned and logged have to be set in that batch's own context.
 *
 * Relies on Spark: the query hands the context of each batch to its trigger executor, on the stream's thread, when the batch before
 * is in both logs. It makes the batch's settings and its plan from that context. The loop runs in the trigger executor that the
 * query started with; an executor that replaces it later is only handed the contexts.
 *
 * @param before called with the context of each batch
 */
private[realtime] final class BatchBoundary private (
    inner: TriggerExecutor, before: MicroBatchExecutionContext => Unit) extends TriggerExecutor {

  override def setNextBatch(context: MicroBatchExecutionContext): Unit = {
    before(context)
    inner.setNextBatch(context)
  }

  override def execute(batchRunner: MicroBatchExecutionContext => Boolean): Unit = inner.execute(batchRunner)
}

private[realtime] object BatchBoundary {

  /** Called on the stream's thread while the first batch of a run is planned. */
  def observe(query: MicroBatchExecution)(before: MicroBatchExecutionContext => Unit): Unit =
    query.triggerExecutor = new BatchBoundary(query.triggerExecutor, before)
}
