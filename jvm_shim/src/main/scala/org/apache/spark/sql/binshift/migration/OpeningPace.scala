package org.apache.spark.sql.binshift.migration

import scala.jdk.CollectionConverters._

import org.apache.spark.sql.binshift.realtime.RealTimeMode
import org.apache.spark.sql.execution.streaming.ProcessingTimeTrigger
import org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution

/**
 * How many new partitions one epoch opens, so that it does not take visibly longer than others.
 *
 * @param epochMs what an epoch takes, milliseconds; 0 if that is not known
 * @param slackMs what is left until the next trigger
 * @param cores   tasks that run at a time
 */
private[binshift] final case class OpeningPace(epochMs: Long, slackMs: Long, cores: Int) {
  import OpeningPace._

  /**
   * @param inAll  partitions that the step opens, in up to four epochs
   * @param stores of a partition, of all operators
   */
  def partitionsAtOnce(inAll: Int, stores: Int): Int = {
    val affordableMs = math.max(epochMs / EpochShare, slackMs / 2) * math.max(cores, 1)
    val affordable = math.min(affordableMs / (math.max(stores, 1) * StoreMs), inAll.toLong).toInt
    Seq(1, (inAll + MaxEpochs - 1) / MaxEpochs, affordable).max
  }
}

private[binshift] object OpeningPace {
  /** Measured: a task that opens an empty store on a local disk, and commits it, takes up to 0.1 s more than another. */
  private val StoreMs = 100L
  /** An epoch that takes a quarter longer is not told from its neighbours. */
  private val EpochShare = 4
  private val MaxEpochs = 4
  /** In real-time mode a batch is minutes long, and its pause does not grow with what is opened in it. */
  private val AllAtOnce = OpeningPace(epochMs = 0, slackMs = Int.MaxValue, cores = Int.MaxValue)

  /** As of the latest epochs of `query`. Called on the stream's thread, while an epoch is planned. */
  def of(query: MicroBatchExecution): OpeningPace = if (RealTimeMode.isOf(query)) AllAtOnce
  else {
    // Triggers that found no data have no such duration.
    val took = query.recentProgress.toSeq.filter(_.durationMs.containsKey("addBatch"))
      .map(_.durationMs.asScala("triggerExecution").longValue).sorted
    val epochMs = if (took.isEmpty) 0L else took(took.size / 2)
    val intervalMs = query.trigger match {
      case ProcessingTimeTrigger(ms) => ms
      case _ => 0L
    }
    OpeningPace(epochMs, math.max(intervalMs - epochMs, 0L), query.sparkSession.sparkContext.defaultParallelism)
  }
}
