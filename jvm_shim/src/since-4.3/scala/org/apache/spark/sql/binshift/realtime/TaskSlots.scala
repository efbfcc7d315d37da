package org.apache.spark.sql.binshift.realtime

import org.apache.spark.sql.binshift.internals.SparkInternals
import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.execution.datasources.v2.RealTimeStreamScanExec
import org.apache.spark.sql.execution.exchange.ShuffleExchangeExec
import org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution
import org.apache.spark.sql.execution.streaming.state.binshift.BinshiftException

/**
 * Tasks that can run at a time, and how many a query needs.
 *
 * In real-time mode all tasks of a batch run at once. Spark ends a query whose batch needs more slots than are free, so a
 * number of partitions that does not fit must not be told to it.
 *
 * Relies on Spark: a batch needs one slot for each partition of each of its stages, and gets those of the default resource
 * profile that no other job has.
 */
private[realtime] final class TaskSlots(query: MicroBatchExecution) extends Slots {
  @volatile private var latest = Option.empty[Stages]

  override def note(plan: SparkPlan, n: Int): Unit = {
    val exchanges = plan.collect { case e: ShuffleExchangeExec if isRealTime(e) => e.outputPartitioning.numPartitions }
    val (routed, others) = exchanges.partition(_ == n)
    // With one partition there may be no exchange, where there is one with several.
    latest = Some(Stages(scans(plan), others.sum, math.max(routed.size, 1)))
  }

  /** Slots that a batch with `n` state partitions takes; `None` before the first one was planned. */
  private def needed(n: Int): Option[Int] = latest.map(s => s.scans.map(_.inputPartitions.size).sum + s.others + s.routed * n)

  /** Slots that this query can have: those of all executors that are there, but for what other jobs take. */
  private def present: Int = {
    val context = query.sparkSession.sparkContext
    val tracker = context.statusTracker
    val own = tracker.getJobIdsForGroup(query.runId.toString).flatMap(tracker.getJobInfo(_)).flatMap(_.stageIds()).toSet
    val others = tracker.getActiveStageIds().filterNot(own).flatMap(tracker.getStageInfo(_))
      .map(stage => stage.numTasks - stage.numCompletedTasks).sum
    math.max(SparkInternals.taskSlots(context) - others, 0)
  }

  override def reasonAgainst(n: Int): Option[String] = missing(n).map(_._3)

  override def requireRoomFor(n: Int): Unit = for ((slots, there, reason) <- missing(n)) {
    throw BinshiftException("TOO_FEW_SLOTS", "needed" -> slots, "present" -> there).plan(
      s"$reason; add executors or cores, or plan for fewer partitions")
  }

  private def missing(n: Int): Option[(Int, Int, String)] =
    for {
      slots <- needed(n)
      there = present
      if slots > there
    } yield (slots, there,
      s"in real-time mode, all tasks of a batch run at once: $n partitions need $slots task slots, and $there are there")

  private def isRealTime(plan: SparkPlan): Boolean = plan.exists(_.isInstanceOf[RealTimeStreamScanExec])

  private def scans(plan: SparkPlan): Seq[RealTimeStreamScanExec] = plan.collect { case s: RealTimeStreamScanExec => s }
}

/**
 * @param others partitions of stages whose number does not change
 * @param routed stages that have as many partitions as there are of state
 */
private final case class Stages(scans: Seq[RealTimeStreamScanExec], others: Int, routed: Int)
