package org.apache.spark.sql.execution.streaming.state.binshift.statistics

import org.apache.spark.sql.execution.streaming.state.binshift.routing.{ShippedBin, ShippingOrder}

/**
 * Counts, by step, the rows that a store's writes add to bins that are about to leave it. These bins can then be dropped as whole
 * ranges, and the store still knows how many rows it has. For families that are read in order, whose bins are no ranges, it
 * remembers the keys.
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
  private val keys = Array.fill(steps.size)(new DepartingKeys(KeyBudget.here))
  private var version = order.base

  /** Notes that a write to `bin` added `rows`, or removed them if negative. */
  def add(bin: Int, rows: Long, isInternal: Boolean): Unit = if (rows != 0 && isDeparting(bin)) {
    pending(slots(bin) - 1) += RowCounts.of(isInternal, rows)
  }

  /** Notes a write of `bytes` to `key`, in a family that is read in order. Zero bytes mean a removal. */
  def addKey(bin: Int, family: String, key: Array[Byte], bytes: Int): Unit = if (isDeparting(bin)) {
    val of = keys(slots(bin) - 1)
    if (bytes > 0) of.put(family, key) else of.remove(family, key)
  }

  def onLoad(loaded: Long): Unit = {
    if (loaded != version) invalidate()
    pending.indices.foreach(pending(_) = RowCounts.Zero)
    keys.foreach(_.onLoad())
  }

  def onCommit(newVersion: Long): Unit = if (version == newVersion - 1) {
    version = newVersion
    pending.indices.foreach { i =>
      committed(i) += pending(i)
      pending(i) = RowCounts.Zero
    }
    keys.foreach(_.onCommit())
  }

  def invalidate(): Unit = {
    version = DepartingRows.Invalid
    close()
  }

  /** The rows added to the bins of `step` from the order's base up to version `at`, if that is known. */
  def since(step: Int, at: Long): Option[RowCounts] = known(step, at).map(committed(_))

  /**
   * The keys that were written to the bins of `step` since the base, or since [[takeKeysSoFar]], in families that are read in
   * order; `None` if they aren't known, or were taken before.
   */
  def takeKeysSince(step: Int, at: Long): Option[Map[String, Iterable[Array[Byte]]]] = known(step, at).flatMap(keys(_).take())

  /**
   * The keys that are known when version `at` is loaded, for the steps that want them. [[takeKeysSince]] returns the rest.
   *
   * @param wants called with a step and the bytes that its keys take
   */
  def takeKeysSoFar(at: Long)(wants: (Int, Long) => Boolean): Seq[(Int, Map[String, Seq[Array[Byte]]])] =
    if (version != at) Nil
    else for {
      (step, i) <- steps.zipWithIndex if keys(i).size > 0 && wants(step, keys(i).size)
    } yield step -> keys(i).takeSoFar()

  /** Forgets everything: nobody needs the counts any more. */
  def close(): Unit = keys.foreach(_.forget())

  /** The position of `step`, if what was written up to version `at` is known. */
  private def known(step: Int, at: Long): Option[Int] = Option.when(version == at)(steps.indexOf(step)).filter(_ >= 0)

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
