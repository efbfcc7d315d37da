package org.apache.spark.sql.binshift.realtime

import org.apache.spark.SparkContext
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

  override def reasonAgainst(n: Int, now: Int): Option[String] = missing(n, now).map(_.reason)

  override def requireRoomFor(n: Int, now: Int): Unit = missing(n, now).foreach { m =>
    throw m.refused(s"${m.reason}; add executors or cores, or plan for fewer partitions")
  }

  override def requireRoomWithout(executors: Set[String], n: Int): Unit =
    for {
      needed <- latest.map(_.tasks.needed(n))
      free = FreeSlots.freeBut(context, query.runId.toString, executors)
      if needed > free
    } {
      val m = Missing(n, needed, free)
      throw m.refused(s"${m.reason} without executor ${executors.toSeq.sorted.mkString(" and ")}; add executors first, or " +
        "rescale to fewer partitions")
    }

  private def missing(n: Int, now: Int): Option[Missing] =
    for {
      tasks <- latest.map(_.tasks)
      needed = tasks.needed(n)
      if needed > tasks.needed(now)
      free = FreeSlots.freeBut(context, query.runId.toString)
      if needed > free
    } yield Missing(n, needed, free)

  private def context: SparkContext = query.sparkSession.sparkContext
}

private final case class Missing(partitions: Int, needed: Int, free: Int) {
  def reason: String = s"in real-time mode, all tasks of a batch run at once: $partitions partitions need $needed task slots, " +
    s"and $free are there"

  def refused(message: String): BinshiftException =
    BinshiftException("TOO_FEW_SLOTS", "needed" -> needed, "present" -> free).plan(message)
}

/** A plan whose tasks are counted once somebody asks: until then its sources need not say what they would read. */
private final class Noted(plan: SparkPlan, binned: Set[Long]) {
  lazy val tasks: BatchTasks = new BatchTasks(plan, binned)
}
