package org.apache.spark.sql.binshift.migration

import org.json4s.JValue
import org.json4s.JsonDSL._

import org.apache.spark.sql.binshift.statistics.StatisticsSnapshot
import org.apache.spark.sql.execution.streaming.state.binshift.routing.Move
import org.apache.spark.sql.execution.streaming.state.binshift.shipping.BackgroundConf

/**
 * A forecast, made when a plan is submitted, of what it takes to copy its bins ahead of their steps. It assumes the sizes of bins in the
 * statistics, and that each executor sends at the pace with which copying begins.
 *
 * @param bytes   bytes of all rows that are copied
 * @param seconds the time in which the executor with the most of them sends its own
 * @param tooMuch says, for people, which copies will find no room
 */
private[binshift] final case class CopyForecast(bytes: Long, seconds: Long, tooMuch: Option[String]) {
  def toJson: JValue = ("bytes" -> bytes) ~ ("seconds" -> seconds) ~ ("too_much" -> tooMuch)
}

private[binshift] object CopyForecast {
  /** `None` if Spark doesn't count rows, so that the sizes of bins are not known. */
  def of(plan: MigrationPlan, statistics: StatisticsSnapshot, conf: BackgroundConf): Option[CopyForecast] =
    Option.when(statistics.operators.forall(_.isSized)) {
      val moves = plan.steps.flatMap(_.moves)
      def byExecutor(side: Move => Int): Map[Option[String], Long] = {
        for (o <- statistics.operators; m <- moves) yield o.executors.lift(side(m)).flatten -> o.bytes(m.bin)
      }.groupMapReduce(_._1)(_._2)(_ + _)
      val sent = byExecutor(_.source)
      CopyForecast(
        sent.values.sum, sent.values.maxOption.getOrElse(0L) / conf.expectedBytesPerSecond,
        tooMuch(byExecutor(_.target), conf.maxStagedBytes, statistics.operators.flatMap(_.executors.flatten).distinct.size))
    }

  /** Assumes that partitions which have yet to be opened will be spread evenly over the executors. */
  private def tooMuch(staged: Map[Option[String], Long], room: Long, executors: Int): Option[String] = {
    val opened = staged.getOrElse(None, 0L) / math.max(executors, 1)
    val known = staged.collect { case (Some(executor), bytes) => (executor, bytes + opened) }
    (known ++ Option.when(known.isEmpty)("(new)" -> opened)).filter(_._2 > room).toSeq.sortBy(-_._2).headOption.map {
      case (executor, bytes) =>
        s"executor $executor would get $bytes bytes of copies and has room for $room (ship.maxStagedBytes): bins that find " +
          "none are read from the checkpoint in the epoch of their step; raise the setting, or move them by several plans"
    }
  }
}
