package org.apache.spark.sql.binshift.migration

import java.util.UUID

import org.apache.spark.broadcast.Broadcast
import org.apache.spark.internal.Logging
import org.apache.spark.sql.binshift.internals.{Broadcasts, CommittedEpoch}
import org.apache.spark.sql.execution.{QueryExecution, SparkPlan}
import org.apache.spark.sql.execution.streaming.state.binshift.{LogLine, Trace}
import org.apache.spark.sql.execution.streaming.state.binshift.checkpoint.ControlDir
import org.apache.spark.sql.execution.streaming.state.binshift.provider.BinMetrics
import org.apache.spark.sql.execution.streaming.state.binshift.routing.{Delivery, Move, ShippingHint, ShippingOrder, StepRef}
import org.apache.spark.sql.execution.streaming.operators.stateful.StateStoreWriter
import org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution

/**
 * The driver's side of shipping: writes orders, announces them with each epoch, and learns from the
 * metrics of the last epoch whether the copies for the next step have arrived.
 *
 * An order is announced from the epoch whose commits it copies to the epoch of its last step. Orders end with the run, because the
 * executors of another run have none of the copies.
 *
 * Called on the stream's thread, under the lock of the run.
 */
private[binshift] final class ShipmentCoordinator(query: MicroBatchExecution, dir: ControlDir) extends Logging {
  private var open = Seq.empty[OpenOrder]
  private var announced: Option[Announcement] = None
  /** The announcement before that. */
  private var former: Option[Announcement] = None

  /** True if the moves of a step are ordered. */
  def covers(migration: String, step: Int): Boolean = open.exists(_.covers(migration, step))

  /** Has bins copied as of version `base`, for `steps`, the first of which has number `firstStep`. */
  def order(
      migration: String, base: Long, firstStep: Int, steps: IndexedSeq[Seq[Move]], delivery: Delivery): Unit = {
    val broadcast = query.sparkSession.sparkContext.broadcast(Array.emptyByteArray)
    val order = ShippingOrder(UUID.randomUUID().toString, broadcast.id, base, firstStep, steps, delivery)
    open = open :+ new OpenOrder(migration, order, broadcast)
    if (Trace.isOn) Trace("order", dir.checkpoint, "order" -> order.id, "epoch" -> (base - 1), "base" -> base,
      "migration" -> migration,
      "delivery" -> delivery.name, "splits" -> order.splits,
      "moves" -> steps.flatten.groupMap(m => (m.source, m.target))(_.bin).toSeq.map { case ((source, target), bins) =>
        Seq[Any](source, target, Trace.ranges(bins))
      })
    ShippingOrder.write(dir, open.map(_.order))
    logInfo(LogLine("copies", "query" -> query.id, "epoch" -> (base - 1), "migration" -> migration,
        "steps" -> s"${firstStep + 1}-${firstStep + steps.size}", "bins" -> steps.map(_.size).sum, "delivery" -> delivery.name,
        "order" -> order.id))
  }

  /**
   * Forgets all orders but those for steps that are to come, and for the one that takes effect at the
   * epoch that is planned.
   *
   * @param next the first step to come and its migration, if one is under way
   */
  def closeOthers(next: Option[(String, Int)], now: Option[StepRef]): Unit = {
    val (kept, over) = open.partition { o =>
      now.exists(s => o.covers(s.migration, s.index)) || o.order.isOnDemand && isFetching ||
      next.exists { case (m, step) => o.isFor(m, step) }
    }
    close(over, kept)
  }

  /** Gives up copies that were ordered. */
  def abandon(): Unit = close(open, Nil)

  /**
   * The announcement that the jobs of `epoch` carry.
   *
   * @param next  the next step
   * @param isDue whether the step takes effect at the epoch after
   */
  def hint(epoch: Long, next: Int, isDue: Boolean): String = {
    former = announced
    announced = Option.when(open.nonEmpty)(
      Announcement(epoch, next, query.getLatestExecutionContext().executionPlan))
    ShippingHint.render(query.runId.toString, epoch, open.map(o => ShippingHint(o.order.id, next, isDue)))
  }

  /** Gives up everything, when the query has ended; the next run writes its own orders. */
  def close(): Unit = {
    val over = open
    open = Nil
    over.foreach(destroy)
  }

  /**
   * How far the copies for `step`, `total` in all, have come, by the reports of the last epoch's tasks; `None` if none was asked.
   * A task that ran twice is counted twice, which can only delay the step.
   */
  def copies(step: Int, total: Long): Option[CopyState] = announced.filter(_.next == step).map(a =>
    CopyState(sumOf(BinMetrics.AwaitedName, a), total, sumOf(BinMetrics.GivenUpName, a), sumOf(BinMetrics.BytesCopiedName, a)))

  private def sumOf(metric: String, a: Announcement): Long =
    a.plan.executedPlan.collect { case op: SparkPlan with StateStoreWriter => op }
      .flatMap(_.metrics.get(metric)).map(_.value).sum

  /** The partitions that may be sending bins which have left them already. */
  def sending: Set[Int] = open.iterator.map(_.order).filterNot(_.isAhead).flatMap(_.steps.flatten).map(_.source).toSet

  /** The bins that come on demand, and may be on their way at `epoch`. */
  def onTheWay(epoch: Long): Set[Int] =
    open.iterator.map(_.order).filter(o => o.isOnDemand && o.base <= epoch).flatMap(_.steps.flatten).map(_.bin).toSet

  /**
   * True if bins that come on demand are still on their way, as far as the driver knows. Tasks of an epoch that still runs haven't
   * reported anything, so the reports of the epoch before count.
   */
  def isFetching: Boolean = {
    val onDemand = open.map(_.order).filter(_.isOnDemand)
    def ended = announced.filter(_.epoch <= CommittedEpoch.of(query)).orElse(former)
    onDemand.nonEmpty && ended.forall(a => onDemand.exists(a.epoch < _.base) || sumOf(BinMetrics.AwaitedName, a) > 0)
  }

  private def close(over: Seq[OpenOrder], kept: Seq[OpenOrder]): Unit = if (over.nonEmpty) {
    open = kept
    ShippingOrder.write(dir, open.map(_.order))
    over.foreach(destroy)
  }

  private def destroy(order: OpenOrder): Unit = {
    if (Trace.isOn) Trace("order closed", dir.checkpoint, "order" -> order.order.id)
    Broadcasts.destroy(order.broadcast, query.sparkSession.sparkContext)
  }
}

private final class OpenOrder(migration: String, val order: ShippingOrder, val broadcast: Broadcast[_]) {
  def covers(ofMigration: String, step: Int): Boolean = ofMigration == migration && order.covers(step)

  /** True if the order has step `step` or a later one. */
  def isFor(ofMigration: String, step: Int): Boolean =
    ofMigration == migration && order.firstStep + order.steps.size > step
}

/** @param plan the plan of the epoch whose jobs carried the announcement for step `next` */
private final case class Announcement(epoch: Long, next: Int, plan: QueryExecution)
