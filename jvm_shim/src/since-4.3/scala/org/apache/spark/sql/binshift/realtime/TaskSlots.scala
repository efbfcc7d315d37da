package org.apache.spark.sql.binshift.realtime

import org.apache.spark.SparkContext
import org.apache.spark.scheduler.binshift.FreeSlots
import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution
import org.apache.spark.sql.execution.streaming.state.binshift.BinshiftException

/**
 * Tells whether Spark would run a batch with another number of partitions.
 *
 * In real-time mode, all tasks of a batch run at once. Spark ends a query whose batch needs more slots than are free, so it must
 * never be told a number of partitions that doesn't fit.
 */
private[realtime] abstract class TaskSlots(query: MicroBatchExecution) extends EpochProtocol {
  @volatile private var latest = Option.empty[Noted]

  override def note(plan: SparkPlan, binned: Set[Long]): Unit = latest = Some(new Noted(plan, binned))

  override def reasonAgainst(n: Int, now: Int, leaving: Set[String]): Option[String] = moreThanFree(n, now, leaving).map(_.reason)

  override def requireRoomFor(n: Int, now: Int, leaving: Set[String]): Unit =
    moreThanFree(n, now, leaving).foreach(m => throw m.refused("add executors or cores, or plan for fewer partitions"))

  override def requireRoomWithout(executors: Set[String], n: Int): Unit =
    for {
      needed <- latest.map(_.tasks.needed(n))
      m <- ifTooFew(n, needed, executors)
    } throw m.refused("add executors first, or rescale to fewer partitions")

  private def moreThanFree(n: Int, now: Int, leaving: Set[String]): Option[Missing] =
    for {
      tasks <- latest.map(_.tasks)
      needed = tasks.needed(n)
      if needed > tasks.needed(now)
      m <- ifTooFew(n, needed, leaving)
    } yield m

  private def ifTooFew(n: Int, needed: Int, leaving: Set[String]): Option[Missing] = {
    val free = FreeSlots.freeBut(context, query.runId.toString, leaving)
    Option.when(needed > free)(Missing(n, needed, free, leaving))
  }

  private def context: SparkContext = query.sparkSession.sparkContext
}

private final case class Missing(partitions: Int, needed: Int, free: Int, leaving: Set[String]) {
  def reason: String = {
    val without = if (leaving.isEmpty) "" else s" without executor ${leaving.toSeq.sorted.mkString(" and ")}"
    s"in real-time mode, all tasks of a batch run at once: $partitions partitions need $needed task slots, and $free are there" +
      without
  }

  def refused(advice: String): BinshiftException =
    BinshiftException("TOO_FEW_SLOTS", "needed" -> needed, "present" -> free).plan(s"$reason; $advice")
}

/** A plan whose tasks are counted on demand, because counting makes the sources say what they would read. */
private final class Noted(plan: SparkPlan, binned: Set[Long]) {
  lazy val tasks: BatchTasks = new BatchTasks(plan, binned)
}
