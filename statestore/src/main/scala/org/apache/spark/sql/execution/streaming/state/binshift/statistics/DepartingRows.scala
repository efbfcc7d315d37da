package org.apache.spark.sql.execution.streaming.state.binshift.statistics

import org.apache.spark.sql.execution.streaming.state.binshift.routing.{ShippedBin, ShippingOrder}

/**
 * Counts, by step, the rows that a store's writes add to bins that are about to leave it. These bins can then be dropped without a
 * look at their rows, and the store still knows how many rows it has.
 *
 * Counts are valid only while one store in one place goes from version to version. Anything else invalidates them. Used by the
 * store's task.
 */
private[binshift] final class DepartingRows(order: ShippingOrder, bins: Iterable[ShippedBin]) {
  private val steps = bins.map(_.step).toSeq.distinct.sorted.toIndexedSeq
  private val slots = new Array[Short](bins.map(_.bin).max + 1)
  bins.foreach(b => slots(b.bin) = (steps.indexOf(b.step) + 1).toShort)
  private val pending = Array.fill(steps.size)(RowCounts.Zero)
  private val committed = Array.fill(steps.size)(RowCounts.Zero)
  private var version = order.base

  /** Notes that a write to `bin` added `rows`, or removed them if negative. */
  def add(bin: Int, rows: Long, isInternal: Boolean): Unit = if (rows != 0 && isDeparting(bin)) {
    pending(slots(bin) - 1) += RowCounts.of(isInternal, rows)
  }

  def onLoad(loaded: Long): Unit = {
    if (loaded != version) invalidate()
    pending.indices.foreach(pending(_) = RowCounts.Zero)
  }

  def onCommit(newVersion: Long): Unit = if (version == newVersion - 1) {
    version = newVersion
    pending.indices.foreach { i =>
      committed(i) += pending(i)
      pending(i) = RowCounts.Zero
    }
  }

  def invalidate(): Unit = version = DepartingRows.Invalid

  /** The rows added to the bins of `step` from the order's base up to version `at`, if that is known. */
  def since(step: Int, at: Long): Option[RowCounts] =
    Option.when(version == at)(steps.indexOf(step)).filter(_ >= 0).map(committed(_))

  private def isDeparting(bin: Int): Boolean = bin < slots.length && slots(bin) > 0
}

private[binshift] object DepartingRows {
  private val Invalid = -1L

  /** Picks the counter that hears of writes: that of the newest order. The others miss these writes, so they are invalidated. */
  def fed(ofOrders: Seq[DepartingRows]): Option[DepartingRows] = {
    ofOrders.dropRight(1).foreach(_.invalidate())
    ofOrders.lastOption
  }
}
