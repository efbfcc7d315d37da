package org.apache.spark.sql.binshift

import java.util.UUID

import org.apache.spark.broadcast.Broadcast
import org.apache.spark.internal.Logging
import org.apache.spark.sql.execution.{QueryExecution, SparkPlan}
import org.apache.spark.sql.execution.streaming.operators.stateful.StateStoreWriter
import org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution
import org.apache.spark.sql.execution.streaming.state.binshift._

/**
 * The driver's side of shipping: writes orders, announces them with each epoch, and learns from the
 * metrics of the last epoch whether the copies for the next step are there.
 *
 * An order is announced from the epoch whose commits it copies to the epoch of its last step. Orders
 * live no longer than a run: executors of another run have nothing of them.
 *
 * Called on the stream's thread, under the router's lock.
 */
private[binshift] final class ShippingDesk(query: MicroBatchExecution, dir: ControlDir) extends Logging {
  private var open = Seq.empty[OpenOrder]
  private var announced: Option[Announcement] = None

  /** Whether the moves of step `step` are ordered. */
  def covers(step: Int): Boolean = open.exists(_.order.covers(step))

  /** Has bins copied as of version `base`, for `steps`, the first of which has number `firstStep`. */
  def order(base: Long, firstStep: Int, steps: IndexedSeq[Seq[Move]]): Unit = {
    val broadcast = query.sparkSession.sparkContext.broadcast(Array.emptyByteArray)
    val order = ShippingOrder(UUID.randomUUID().toString, broadcast.id, base, firstStep, steps)
    open = open :+ new OpenOrder(order, broadcast)
    ShippingOrder.write(dir, open.map(_.order))
    logInfo(s"query ${query.id}: ${steps.map(_.size).sum} bins are to be copied as of version $base")
  }

  /** Forgets orders all of whose steps are before step `before`, or all orders. */
  def closeTaken(before: Int, isOver: Boolean): Unit = {
    val (over, kept) = open.partition(o => isOver || o.order.firstStep + o.order.steps.size <= before)
    close(over, kept)
  }

  /** Gives up copies that were ordered. */
  def abandon(): Unit = close(open, Nil)

  /**
   * What the jobs of `epoch` are to carry.
   *
   * @param next  the step that is waited for
   * @param isDue whether it takes effect at the epoch after
   */
  def hint(epoch: Long, next: Int, isDue: Boolean): Option[String] = {
    announced = Option.when(open.nonEmpty)(
      Announcement(epoch, next, query.getLatestExecutionContext().executionPlan))
    Option.when(open.nonEmpty)(ShippingHint.render(query.runId.toString, epoch,
      open.map(o => ShippingHint(o.order.id, next, isDue))))
  }

  /**
   * Bins of `step` that had no copy when the tasks of the last epoch ended; `None` if none was asked.
   * A task that ran twice is counted twice, which can only delay the step.
   */
  def awaited(step: Int): Option[Long] = announced.filter(_.next == step).map { a =>
    a.plan.executedPlan.collect { case op: SparkPlan with StateStoreWriter => op }
      .flatMap(_.metrics.get(BinMetrics.AwaitedName)).map(_.value).sum
  }

  private def close(over: Seq[OpenOrder], kept: Seq[OpenOrder]): Unit = if (over.nonEmpty) {
    open = kept
    ShippingOrder.write(dir, open.map(_.order))
    over.foreach(_.broadcast.destroy())
  }
}

private final class OpenOrder(val order: ShippingOrder, val broadcast: Broadcast[_])

/** @param plan of the epoch with which it was announced that step `next` is waited for */
private final case class Announcement(epoch: Long, next: Int, plan: QueryExecution)
