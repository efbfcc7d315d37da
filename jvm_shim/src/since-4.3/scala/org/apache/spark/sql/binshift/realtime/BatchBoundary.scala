package org.apache.spark.sql.binshift.realtime

import org.apache.spark.sql.execution.streaming.runtime.{MicroBatchExecution, MicroBatchExecutionContext, TriggerExecutor}

/**
 * Where one batch is committed and nothing of the next one is decided.
 *
 * In real-time mode, Spark logs a batch when it ends, with the settings that its context has then. So what the next batch is
 * to be planned and logged with can be told to the next batch's own context only.
 *
 * Relies on Spark: the query hands the context of each batch to its trigger executor, on the stream's thread, when the
 * batch before is in both logs, and makes the batch's settings and its plan from that context. The executor that runs the
 * loop is the one of the start; whatever takes its place later is only handed contexts.
 *
 * @param before what is done with the context of a batch
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
