package org.apache.spark.sql.execution.streaming.state.binshift

import java.io.File
import java.util.UUID
import java.util.concurrent.TimeUnit

import scala.util.control.NonFatal

import org.apache.spark.internal.Logging
import org.apache.spark.sql.execution.streaming.state.StateStoreId
import org.apache.spark.util.Utils

/**
 * One store's part in the orders that the driver announces: what it sends, and what it is about to get.
 *
 * Called by the store's task: `onLoad` and `onCommit` with every epoch, the rest at a switch. A store
 * that comes to another executor in the middle of an order stages anew there, and sends nothing.
 */
private[binshift] final class PartitionShipping(
    store: StateStoreId,
    db: BinnedRocksDB,
    routing: EpochRouting,
    spark: RocksDBArguments,
    conf: BackgroundConf) extends Logging {

  private var parts = Seq.empty[OrderPart]
  private var counts: Option[DepartingRows] = None

  /** Counts writes to bins that are about to leave; null if none are, for the write path's sake. */
  def departing: DepartingRows = counts.orNull

  /** Before the database changes or is closed. */
  def awaitLinks(): Unit = parts.foreach(_.awaitLinks())

  /** After the version is loaded, and before its switch. */
  def onLoad(epoch: Long): Unit = routing.shippingHints(epoch).filter(_.nonEmpty || parts.nonEmpty).foreach { hints =>
    val (kept, over) = parts.partition(p => hints.exists(_.order == p.order.id))
    over.foreach(_.close())
    val fresh = hints.filterNot(h => kept.exists(_.order.id == h.order))
    parts = kept ++ fresh.flatMap(open)
    parts = parts.filter(p => attempt(p)(p.onLoad(epoch, hints.find(_.order == p.order.id).get)))
    counts = parts.flatMap(_.counts).lastOption
  }

  /** @param checkpointId id of the commit under checkpoint format 2 */
  def onCommit(version: Long, checkpointId: Option[String]): Unit = if (parts.nonEmpty) {
    parts = parts.filter(p => attempt(p)(p.onCommit(version, checkpointId)))
    counts = parts.flatMap(_.counts).lastOption
  }

  /** Rows went that were not counted. */
  def invalidateCounts(): Unit = counts.foreach(_.invalidate())

  private def open(hint: ShippingHint): Option[OrderPart] = try {
    routing.shippingOrder(hint.order).map(new OrderPart(_, store, db, routing, spark, conf))
  } catch {
    case NonFatal(e) =>
      logWarning(s"$store takes no part in order ${hint.order}", e)
      None
  }

  /** What goes wrong with copies must not fail the batch; without them, bins come from the checkpoint. */
  private def attempt(part: OrderPart)(body: => Unit): Boolean = try {
    body
    true
  } catch {
    case NonFatal(e) =>
      logWarning(s"$store takes no more part in order ${part.order.id}", e)
      part.close()
      false
  }

  /** Bins that arrive with the steps that are waited for, and of which there is no copy yet. */
  def awaited: Int = parts.map(_.awaited).sum

  /** Bytes of rows that were copied so far, for all steps; they do not shrink while an order is open. */
  def bytesCopied: Long = parts.map(_.bytesCopied).sum

  /** The copy of `bins` that come from `source` with the switch at `version`, and their step. */
  def find(version: Long, source: Int, bins: Seq[Int]): Option[(StagedCopy, Int)] =
    parts.iterator.flatMap(_.find(version, source, bins)).nextOption()

  /** Whether `bins`, which arrive from `source` with the switch at `version`, come on demand. */
  def onDemand(version: Long, source: Int, bins: Seq[Int]): Option[StagedBins] =
    parts.iterator.flatMap(_.onDemand(version, source, bins)).nextOption()

  /** What sends `bins`, which leave on demand at `version`. */
  def leavingOnDemand(version: Long, bins: Seq[Int]): Option[Exporter] =
    parts.iterator.flatMap(_.leavingOnDemand(version, bins)).nextOption()

  /** Rows of `bins`, all of which leave at `version`, if they were counted. */
  def departingRows(version: Long, bins: Seq[Int]): Option[RowCounts] =
    parts.iterator.flatMap(_.departingRows(version, bins)).nextOption()

  def close(): Unit = {
    parts.foreach(_.close())
    parts = Nil
    counts = None
  }
}

/** One store's part in one order. */
private final class OrderPart(
    val order: ShippingOrder,
    store: StateStoreId,
    db: BinnedRocksDB,
    routing: EpochRouting,
    spark: RocksDBArguments,
    conf: BackgroundConf) {

  private val leaving = order.leaving(store.partitionId)
  private val arriving = order.arriving(store.partitionId)
  private var next = order.firstStep
  private var exporter: Option[Exporter] = None
  private var departing: Option[DepartingRows] = None
  private var staged: Option[StagedBins] = None

  def counts: Option[DepartingRows] = departing

  def awaitLinks(): Unit = exporter.foreach(_.awaitLinks())

  def onLoad(epoch: Long, hint: ShippingHint): Unit = {
    next = hint.next
    departing.foreach(_.onLoad(epoch))
    stageFrom(epoch)
    staged.foreach(_.begin(epoch, Option.when(hint.isDue)(hint.next)))
  }

  def onCommit(version: Long, checkpointId: Option[String]): Unit = {
    departing.foreach(_.onCommit(version))
    if (version == order.base && leaving.nonEmpty) {
      db.residents.requireAll()
      exporter.foreach(_.cancel())
      val attempt = CommittedFile.attempt(store, version, checkpointId, spark.hadoopConf)
      exporter = Some(new Exporter(store, order, attempt, conf, db, spark.useColumnFamilies))
      departing = Some(new DepartingRows(order, leaving.values.flatten))
    }
    stageFrom(version)
  }

  def awaited: Int = if (order.isOnDemand) 0 else arriving.collect {
    case (source, bins) if !staged.exists(_.isSettled(source)) => bins.count(_.step == next)
  }.sum

  def bytesCopied: Long = staged.map(_.bytesCopied).getOrElse(0L)

  def find(version: Long, source: Int, bins: Seq[Int]): Option[(StagedCopy, Int)] = for {
    step <- stepOf(arriving.getOrElse(source, Nil), bins)
    copy <- staged.flatMap(_.copyFrom(source, isUrgent = order.isUrgent))
  } yield (copy, step)

  def onDemand(version: Long, source: Int, bins: Seq[Int]): Option[StagedBins] = staged.filter { _ =>
    order.isOnDemand && order.base == version &&
      arriving.getOrElse(source, Nil).map(_.bin).sorted == bins.sorted
  }

  def leavingOnDemand(version: Long, bins: Seq[Int]): Option[Exporter] = exporter.filter { _ =>
    order.isOnDemand && order.base == version && leaving.values.flatten.map(_.bin).toSeq.sorted == bins.sorted
  }

  /** On demand, rows are counted as they are sent; see [[leavingOnDemand]]. */
  def departingRows(version: Long, bins: Seq[Int]): Option[RowCounts] = for {
    step <- stepOf(leaving.values.flatten.toSeq, bins) if !order.isOnDemand
    sent <- exporter.flatMap(_.rowsByStep)
    since <- departing.flatMap(_.since(step, version))
  } yield sent.getOrElse(step, RowCounts.Zero) + since

  def close(): Unit = {
    exporter.foreach(_.cancel())
    staged.foreach(_.close())
  }

  /** The step with which exactly `bins` go. */
  private def stepOf(shipped: Seq[ShippedBin], bins: Seq[Int]): Option[Int] =
    shipped.groupMap(_.step)(_.bin).collectFirst { case (step, all) if all.sorted == bins.sorted => step }

  /**
   * From the commit of the base on, when this store has made its column families; not after the switch, as on an
   * executor to which the store came since.
   */
  private def stageFrom(version: Long): Unit =
    if (staged.isEmpty && arriving.nonEmpty && (version == order.base || version > order.base && !order.isUrgent)) {
      val dir = new File(db.localRootDir.getParentFile, s"binshift-staged-${UUID.randomUUID()}")
      val families = ColumnFamily.numbered(db, spark.useColumnFamilies).map(f => f.family.name -> f).toMap
      staged = Some(new StagedBins(dir, conf, order.isUrgent, arriving.map { case (source, bins) =>
        val place = new File(dir, source.toString)
        Utils.createDirectory(place)
        new StagedCopy(
          store.copy(partitionId = source), store.partitionId, order, bins, families, place, routing, spark, conf)
      }.toSeq))
    }
}

/** The copies for one store, each of which is brought on in the background. */
private[binshift] final class StagedBins(
    dir: File, conf: BackgroundConf, isUrgent: Boolean, copies: Seq[StagedCopy]) extends Logging {
  @volatile private var begun = -1L
  @volatile private var due: Option[Int] = None
  @volatile private var isClosed = false
  copies.foreach(schedule(_, StagedBins.MinDelayMs))

  def begin(epoch: Long, dueStep: Option[Int]): Unit = {
    begun = epoch
    due = dueStep
  }

  def bytesCopied: Long = copies.map(_.bytesCopied).sum

  /** Whether there is a copy from `source`, or never will be one. */
  def isSettled(source: Int): Boolean = copies.exists(c => c.sourcePartition == source && (c.isStaged || c.isFailed))

  /** The copy from `source`, also if it is not whole yet; `None` if there will be none. */
  def copyOnTheWay(source: Int): Option[StagedCopy] = copies.find(c => c.sourcePartition == source && !c.isFailed)

  /** @param isUrgent whether to wait for the copy, since its version is the one that is loaded */
  def copyFrom(source: Int, isUrgent: Boolean): Option[StagedCopy] =
    copies.find(_.sourcePartition == source).filter { copy =>
      val deadline = System.nanoTime() + (if (isUrgent) conf.timeoutMs * 1000000L else 0L)
      while (!copy.isStaged && !copy.isFailed && System.nanoTime() < deadline) Thread.sleep(StagedBins.MinDelayMs)
      copy.isStaged
    }

  def close(): Unit = {
    isClosed = true
    // Not on this thread: a turn that reads a checkpoint may take long.
    ShippingThreads.staging.execute { () =>
      copies.foreach { copy =>
        try copy.close() catch {
          case NonFatal(e) => logWarning(s"a copy in $dir could not be closed; its directory is deleted", e)
        }
      }
      Utils.deleteRecursively(dir)
    }
  }

  /** Turns come in quick succession while there is something to do or an epoch waits, and else more rarely. */
  private def schedule(copy: StagedCopy, delayMs: Long): Unit =
    ShippingThreads.staging.schedule((() => if (!isClosed && !copy.isFailed) {
      val isBusy = copy.turn(begun, due)
      val longest = if (isUrgent) StagedBins.MinDelayMs else StagedBins.MaxDelayMs
      schedule(copy, if (isBusy) pauseMs else math.min(math.max(delayMs, StagedBins.MinDelayMs) * 2, longest))
    }): Runnable, delayMs, TimeUnit.MILLISECONDS)

  /** A copy that the next epoch takes cannot wait, nor can one that this epoch waits for. */
  private def pauseMs: Long =
    if (isUrgent || due.nonEmpty || ExecutorLoad.hasFreeCore) 0 else StagedBins.BusyDelayMs
}

private[binshift] object StagedBins {
  val MinDelayMs = 10L
  private val MaxDelayMs = 320L
  /** Some times what a turn takes. */
  private val BusyDelayMs = 150L
}
