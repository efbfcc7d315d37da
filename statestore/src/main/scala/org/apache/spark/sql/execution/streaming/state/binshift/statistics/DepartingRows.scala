package org.apache.spark.sql.execution.streaming.state.binshift.statistics

import org.apache.spark.sql.execution.streaming.state.binshift.routing.{ShippedBin, ShippingOrder}

/**
 * Counts what a store's writes add to the bins that are about to leave it, by step, so that they can be
 * dropped in one piece and the store still knows how many rows it has. Remembers the keys of families that are read in order,
 * which lie in no piece.
 *
 * Counts only hold along the versions of one store in one place: anything else makes them invalid.
 * Used by the store's task.
 */
private[binshift] final class DepartingRows(order: ShippingOrder, bins: Iterable[ShippedBin]) {
  private val steps = bins.map(_.step).toSeq.distinct.sorted.toIndexedSeq
  private val slots = new Array[Short](bins.map(_.bin).max + 1)
  bins.foreach(b => slots(b.bin) = (steps.indexOf(b.step) + 1).toShort)
  private val pending = Array.fill(steps.size)(RowCounts.Zero)
  private val committed = Array.fill(steps.size)(RowCounts.Zero)
  private val keys = Array.fill(steps.size)(new DepartingKeys(KeyBudget.here))
  private var version = order.base

  /** A write to `bin` added `rows`, or took them away. */
  def add(bin: Int, rows: Long, isInternal: Boolean): Unit = if (rows != 0 && isDeparting(bin)) {
    pending(slots(bin) - 1) += RowCounts.of(isInternal, rows)
  }

  /** A write of `bytes` to `key`, of a family that is read in order; a removal if there are none. */
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

  /** What was added to the bins of `step` from the order's base up to version `at`, if that is known. */
  def since(step: Int, at: Long): Option[RowCounts] = known(step, at).map(committed(_))

  /**
   * The keys of families that are read in order that were written to the bins of `step` since the base, or since
   * [[takeKeysSoFar]], if they are known and were not asked for before.
   */
  def takeKeysSince(step: Int, at: Long): Option[Map[String, Iterable[Array[Byte]]]] = known(step, at).flatMap(keys(_).take())

  /**
   * Those of them that are known when version `at` is loaded, of the steps that want them; the rest is for [[takeKeysSince]].
   *
   * @param wants a step, and the bytes that its keys take
   */
  def takeKeysSoFar(at: Long)(wants: (Int, Long) => Boolean): Seq[(Int, Map[String, Seq[Array[Byte]]])] =
    if (version != at) Nil
    else for {
      (step, i) <- steps.zipWithIndex if keys(i).size > 0 && wants(step, keys(i).size)
    } yield step -> keys(i).takeSoFar()

  /** Nothing of it is wanted any more. */
  def close(): Unit = keys.foreach(_.forget())

  /** The position of `step`, if what was written up to version `at` is known. */
  private def known(step: Int, at: Long): Option[Int] = Option.when(version == at)(steps.indexOf(step)).filter(_ >= 0)

  private def isDeparting(bin: Int): Boolean = bin < slots.length && slots(bin) > 0
}

private[binshift] object DepartingRows {
  private val Invalid = -1L

  /** Of those of all orders, the oldest first, the last is told of writes. The others miss them, and know nothing any more. */
  def fed(ofOrders: Seq[DepartingRows]): Option[DepartingRows] = {
    ofOrders.dropRight(1).foreach(_.invalidate())
    ofOrders.lastOption
  }
}
