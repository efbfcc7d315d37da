package org.apache.spark.sql.execution.streaming.state.binshift.shipping

import org.apache.spark.sql.execution.streaming.state.binshift.OrWarn
import org.apache.spark.sql.execution.streaming.state.binshift.routing.{EpochRouting, ShippingHint}
import org.apache.spark.sql.execution.streaming.state.binshift.storage.{RocksDBArguments, WholeFiles}
import org.apache.spark.sql.execution.streaming.state.StateStoreId

/**
 * One store's part in the orders that the driver announces: the bins that it sends, and the bins that it is about to get.
 *
 * Called by the store's task: `onLoad` and `onCommit` with every epoch, the rest at a switch. A store that comes to another
 * executor in the middle of an order stages anew there, and sends nothing.
 */
private[binshift] final class PartitionShipping(
    store: StateStoreId,
    db: ShippingStore,
    routing: EpochRouting,
    arguments: RocksDBArguments,
    conf: BackgroundConf) extends OrWarn {

  private var parts = Seq.empty[OrderPart]
  @volatile private var needed: Option[Long] = None
  private val times =
    new TaskTimes(CopyPace.here, () => ShippingThreads.copiedBytes.get, () => System.nanoTime())

  /** Called before the database changes or is closed. */
  def awaitLinks(): Unit = parts.foreach(_.awaitLinks())

  /** Called after the version is loaded, and before its switch. */
  def onLoad(epoch: Long): Unit = {
    // In real-time mode, a task takes as long as its batch, whatever else runs.
    if (!conf.areAllCoresBusy) times.begin()
    routing.shippingHints(epoch).filter(_.nonEmpty || isConcerned).foreach(follow(epoch, _))
  }

  private def follow(epoch: Long, hints: Seq[ShippingHint]): Unit = {
    // Computed even if this store can't take part in an order, because copies on other executors need its changes all the same.
    needed = hints.flatMap(neededFor).minOption
    val (kept, over) = parts.partition(p => hints.exists(_.order == p.order.id))
    over.foreach(_.close())
    val fresh = hints.filterNot(h => kept.exists(_.order.id == h.order))
    parts = kept ++ fresh.flatMap(open)
    parts = parts.filter(p => attempt(p)(p.onLoad(epoch, hints.find(_.order == p.order.id).get)))
  }

  /** @param checkpointId id of the commit under checkpoint format 2 */
  def onCommit(version: Long, checkpointId: Option[String]): Unit = {
    if (parts.exists(_.order.isOnDemand)) times.forget()
    times.end()
    parts = parts.filter(p => attempt(p)(p.onCommit(version, checkpointId)))
  }

  /** True if bins arrive here or leave at the next epoch, by a step that was prepared. */
  def isStepNext: Boolean = parts.exists(_.isDueHere)

  /** Called when a switch begins. The time of its task isn't comparable with others. */
  def onSwitch(): Unit = times.forget()

  private def isConcerned: Boolean = parts.nonEmpty || needed.nonEmpty

  private def neededFor(hint: ShippingHint): Option[Long] =
    orWarn(s"$store could not find out which of its files order ${hint.order} needs; it keeps the same files as before", needed)(
      routing.shippingOrder(hint.order).filter { order =>
        order.isAhead && order.leaving(store.partitionId).values.flatten.exists(_.step >= hint.next)
      }.map(_.base - 1))

  private def open(hint: ShippingHint): Option[OrderPart] =
    orWarn(s"$store could not join order ${hint.order}; bins that it should send or get come from the checkpoint",
      Option.empty[OrderPart])(
      routing.shippingOrder(hint.order).map(new OrderPart(_, store, db, routing, arguments, conf)))

  /**
   * Runs `body`, and leaves the order if that fails. A failing copy must not fail the batch; without it, bins come from the
   * checkpoint.
   */
  private def attempt(part: OrderPart)(body: => Unit): Boolean =
    orWarn(
      s"$store has left order ${part.order.id} after an error; bins that it should send or get come from the checkpoint", {
        part.close()
        false
      }) {
      body
      true
    }

  /** The number of bins in the awaited steps whose copies aren't here yet, or are far behind. */
  def awaited: Int = parts.map(_.awaited).sum

  /** The number of bins in the awaited steps for which there will be no copy. */
  def givenUp: Int = parts.map(_.givenUp).sum

  /**
   * The oldest version that copies still need: the one before the base of an order by which bins are to leave. Copies read the
   * changes since the base, and the file of the base shows which attempt committed it. Called by maintenance threads.
   */
  def oldestNeeded: Option[Long] = needed

  /** Bytes of rows that were copied so far, for all steps. Doesn't shrink while an order is open. */
  def bytesCopied: Long = parts.map(_.bytesCopied).sum

  private def serving(version: Long): Iterator[OrderPart] = parts.iterator.filter(_.order.serves(version))

  /** The copy of `bins`, which come from `source` with the switch at `version`, and their step. */
  def find(version: Long, source: Int, bins: Seq[Int]): Option[(StagedCopy, Int)] =
    serving(version).flatMap(_.find(source, bins)).nextOption()

  /** The copies through which `bins` come on demand, if they do so from `source` with the switch at `version`. */
  def onDemand(version: Long, source: Int, bins: Seq[Int]): Option[StagedBins] =
    serving(version).flatMap(_.onDemand(source, bins)).nextOption()

  /** The files with which this store begins at `version`, with `bins` of `source`, if they are on this executor. */
  def split(version: Long, source: Int, bins: Seq[Int]): Option[WholeFiles] =
    serving(version).flatMap(_.split(version, source, bins)).nextOption()

  /** True if this store, which is empty, begins with the files of `source` at `version`, with `bins` as its own. */
  def isSplit(version: Long, source: Int, bins: Seq[Int]): Boolean = serving(version).exists(_.isSplit(source, bins))

  def close(): Unit = {
    parts.foreach(_.close())
    parts = Nil
    needed = None
  }
}
