package org.apache.spark.sql.binshift.realtime

import org.apache.spark.scheduler.binshift.FreeSlots
import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution
import org.apache.spark.sql.execution.streaming.state.binshift.BinshiftException

/**
 * Whether a batch with another number of partitions would be run.
 *
 * In real-time mode all tasks of a batch run at once. Spark ends a query whose batch needs more slots than are free, so a
 * number of partitions that does not fit must not be told to it.
 */
private[realtime] final class TaskSlots(query: MicroBatchExecution) extends Slots {
  @volatile private var latest = Option.empty[Noted]

  override def note(plan: SparkPlan, binned: Set[Long]): Unit = latest = Some(new Noted(plan, binned))

  override def reasonAgainst(n: Int): Option[String] = missing(n).map(_._3)

  override def requireRoomFor(n: Int): Unit = for ((slots, free, reason) <- missing(n)) {
    throw BinshiftException("TOO_FEW_SLOTS", "needed" -> slots, "present" -> free).plan(
      s"$reason; add executors or cores, or plan for fewer partitions")
  }

  private def missing(n: Int): Option[(Int, Int, String)] =
    for {
      slots <- latest.map(_.tasks.needed(n))
      free = FreeSlots.freeBut(query.sparkSession.sparkContext, query.runId.toString)
      if slots > free
    } yield (slots, free,
      s"in real-time mode, all tasks of a batch run at once: $n partitions need $slots task slots, and $free are there")
}

/** A plan whose tasks are counted once somebody asks: until then its sources need not say what they would read. */
private final class Noted(plan: SparkPlan, binned: Set[Long]) {
  lazy val tasks: BatchTasks = BatchTasks.of(plan, binned)
}
