package org.apache.spark.sql.execution.streaming.state.binshift.shipping

import java.io.File
import java.util.UUID

import scala.util.control.NonFatal

import org.apache.spark.internal.Logging
import org.apache.spark.sql.execution.streaming.state.binshift.checkpoint.CommittedFile
import org.apache.spark.sql.execution.streaming.state.binshift.keys.ColumnFamily
import org.apache.spark.sql.execution.streaming.state.binshift.routing.{EpochRouting, ShippedBin, ShippingHint, ShippingOrder}
import org.apache.spark.sql.execution.streaming.state.binshift.statistics.{DepartingRows, RowCounts}
import org.apache.spark.sql.execution.streaming.state.binshift.storage.{DepartedBins, RocksDBArguments}
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
    db: ShippingStore,
    routing: EpochRouting,
    arguments: RocksDBArguments,
    conf: BackgroundConf) extends Logging {

  private var parts = Seq.empty[OrderPart]
  private var counts: Option[DepartingRows] = None
  @volatile private var needed: Option[Long] = None
  private val times =
    new TaskTimes(CopyPace.here, () => ShippingThreads.copiedBytes.get, () => System.nanoTime())

  /** Counts writes to bins that are about to leave; null if none are, for the write path's sake. */
  def departing: DepartingRows = counts.orNull

  /** Before the database changes or is closed. */
  def awaitLinks(): Unit = parts.foreach(_.awaitLinks())

  /** After the version is loaded, and before its switch. */
  def onLoad(epoch: Long): Unit = {
    // In real-time mode a task takes as long as its batch.
    if (!conf.areAllCoresBusy) times.begin()
    routing.shippingHints(epoch).filter(_.nonEmpty || isConcerned).foreach(follow(epoch, _))
  }

  private def follow(epoch: Long, hints: Seq[ShippingHint]): Unit = {
    // Whether or not this store can take part: its changes are wanted all the same.
    needed = hints.flatMap(neededFor).minOption
    val (kept, over) = parts.partition(p => hints.exists(_.order == p.order.id))
    over.foreach(_.close())
    val fresh = hints.filterNot(h => kept.exists(_.order.id == h.order))
    parts = kept ++ fresh.flatMap(open)
    parts = parts.filter(p => attempt(p)(p.onLoad(epoch, hints.find(_.order == p.order.id).get)))
    counts = parts.flatMap(_.counts).lastOption
  }

  /** @param checkpointId id of the commit under checkpoint format 2 */
  def onCommit(version: Long, checkpointId: Option[String]): Unit = {
    if (parts.exists(_.order.isOnDemand)) times.forget()
    times.end()
    if (parts.nonEmpty) {
      parts = parts.filter(p => attempt(p)(p.onCommit(version, checkpointId)))
      counts = parts.flatMap(_.counts).lastOption
    }
  }

  /** Rows went that were not counted, or what is loaded may be of another attempt than what was counted. */
  def invalidateCounts(): Unit = parts.flatMap(_.counts).foreach(_.invalidate())

  private def isConcerned: Boolean = parts.nonEmpty || needed.nonEmpty

  private def neededFor(hint: ShippingHint): Option[Long] =
    try {
      routing.shippingOrder(hint.order).filter { order =>
        !order.isUrgent && order.leaving(store.partitionId).values.flatten.exists(_.step >= hint.next)
      }.map(_.base - 1)
    } catch {
      case NonFatal(e) =>
        logWarning(s"$store does not know what order ${hint.order} needs of it", e)
        needed
    }

  private def open(hint: ShippingHint): Option[OrderPart] =
    try {
      routing.shippingOrder(hint.order).map(new OrderPart(_, store, db, routing, arguments, conf))
    } catch {
      case NonFatal(e) =>
        logWarning(s"$store takes no part in order ${hint.order}", e)
        None
    }

  /** What goes wrong with copies must not fail the batch; without them, bins come from the checkpoint. */
  private def attempt(part: OrderPart)(body: => Unit): Boolean =
    try {
      body
      true
    } catch {
      case NonFatal(e) =>
        logWarning(s"$store takes no more part in order ${part.order.id}", e)
        part.close()
        false
    }

  /** Bins that arrive with the steps that are waited for, and whose copies are not there yet, or far behind. */
  def awaited: Int = parts.map(_.awaited).sum

  /** Bins that arrive with the steps that are waited for, and of which there will be no copy. */
  def givenUp: Int = parts.map(_.givenUp).sum

  /**
   * The oldest version that is to be kept for copies: the one before the base of an order by which bins are to leave. Copies
   * read the changes since the base, and the file of the base itself says which attempt committed it. Called by
   * maintenance threads.
   */
  def oldestNeeded: Option[Long] = needed

  /** Bytes of rows that were copied so far, for all steps; they do not shrink while an order is open. */
  def bytesCopied: Long = parts.map(_.bytesCopied).sum

  /** The copy of `bins` that come from `source` with the switch at `version`, and their step. */
  def find(version: Long, source: Int, bins: Seq[Int]): Option[(StagedCopy, Int)] = {
    // The task of a switch does what others do not.
    times.forget()
    parts.iterator.flatMap(_.find(version, source, bins)).nextOption()
  }

  /** Whether `bins`, which arrive from `source` with the switch at `version`, come on demand. */
  def onDemand(version: Long, source: Int, bins: Seq[Int]): Option[StagedBins] =
    parts.iterator.flatMap(_.onDemand(version, source, bins)).nextOption()

  /** What sends `bins`, which leave on demand at `version`. */
  def leavingOnDemand(version: Long, bins: Seq[Int]): Option[Exporter] =
    parts.iterator.flatMap(_.leavingOnDemand(version, bins)).nextOption()

  /** What is known of `bins`, all of which leave at `version`, if their rows were counted. */
  def departed(version: Long, bins: Seq[Int]): Option[DepartedBins] = {
    times.forget()
    parts.iterator.flatMap(_.departed(version, bins)).nextOption()
  }

  def close(): Unit = {
    parts.foreach(_.close())
    parts = Nil
    counts = None
    needed = None
  }
}

/** One store's part in one order. */
private final class OrderPart(
    val order: ShippingOrder,
    store: StateStoreId,
    db: ShippingStore,
    routing: EpochRouting,
    arguments: RocksDBArguments,
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
    if (hasFamilies) stageFrom(epoch)
    staged.foreach(_.begin(epoch, hint.next, Option.when(hint.isDue)(hint.next)))
  }

  def onCommit(version: Long, checkpointId: Option[String]): Unit = {
    departing.foreach(_.onCommit(version))
    if (version == order.base && leaving.nonEmpty) {
      db.requireAllBins()
      exporter.foreach(_.cancel())
      val attempt = CommittedFile.attempt(store, version, checkpointId, arguments.hadoopConf)
      exporter = Some(new Exporter(store, order, attempt, conf, db, arguments.useColumnFamilies))
      departing.foreach(_.close())
      departing = Some(new DepartingRows(order, leaving.values.flatten))
    }
    stageFrom(version)
  }

  def awaited: Int = if (order.isOnDemand) 0 else nextFrom(source => staged.forall(_.isAwaited(source)))

  def givenUp: Int = if (order.isOnDemand) 0 else nextFrom(source => staged.exists(_.isGivenUp(source)))

  /** Bins of the step that is waited for, from sources for which `holds`. */
  private def nextFrom(holds: Int => Boolean): Int = arriving.collect {
    case (source, bins) if holds(source) => bins.count(_.step == next)
  }.sum

  def bytesCopied: Long = staged.map(_.bytesCopied).getOrElse(0L)

  def find(version: Long, source: Int, bins: Seq[Int]): Option[(StagedCopy, Int)] = for {
    step <- stepOf(arriving.getOrElse(source, Nil), bins)
    copy <- staged.flatMap(_.copyFrom(source))
  } yield (copy, step)

  def onDemand(version: Long, source: Int, bins: Seq[Int]): Option[StagedBins] = staged.filter { _ =>
    order.isOnDemand && order.base == version &&
    arriving.getOrElse(source, Nil).map(_.bin).sorted == bins.sorted
  }

  def leavingOnDemand(version: Long, bins: Seq[Int]): Option[Exporter] = exporter.filter { _ =>
    order.isOnDemand && order.base == version && leaving.values.flatten.map(_.bin).toSeq.sorted == bins.sorted
  }

  /** On demand, rows are counted as they are sent; see [[leavingOnDemand]]. */
  def departed(version: Long, bins: Seq[Int]): Option[DepartedBins] =
    for {
      step <- stepOf(leaving.values.flatten.toSeq, bins) if !order.isOnDemand
      sent <- exporter.flatMap(_.rowsByStep)
      counted <- departing
      since <- counted.since(step, version)
    } yield DepartedBins(
      sent.getOrElse(step, RowCounts.Zero) + since,
      counted.takeKeysSince(step, version).flatMap(keys => exporter.flatMap(_.removal(step, keys))))

  def close(): Unit = {
    exporter.foreach(_.cancel())
    departing.foreach(_.close())
    staged.foreach(_.close())
  }

  /** As far as it is known before the operator has asked for them. */
  private def hasFamilies: Boolean =
    !arguments.useColumnFamilies || ColumnFamily.of(db, useColumnFamilies = true).exists(_.name != ColumnFamily.Default.name)

  /** The step with which exactly `bins` go. */
  private def stepOf(shipped: Seq[ShippedBin], bins: Seq[Int]): Option[Int] =
    shipped.groupMap(_.step)(_.bin).collectFirst { case (step, all) if all.sorted == bins.sorted => step }

  /**
   * From the base on; not after the switch, as on an executor to which the store came since. A store that is
   * loaded for the first time has no column families before its first commit.
   */
  private def stageFrom(version: Long): Unit =
    if (staged.isEmpty && arriving.nonEmpty && (version == order.base || version > order.base && !order.isUrgent)) {
      val dir = new File(db.localRootDir.getParentFile, s"binshift-staged-${UUID.randomUUID()}")
      val families = ColumnFamily.numbered(db, arguments.useColumnFamilies).map(f => f.family.name -> f).toMap
      val copies = arriving.map { case (source, bins) =>
        val place = new File(dir, source.toString)
        Utils.createDirectory(place)
        new StagedCopy(
          store.copy(partitionId = source), store.partitionId, order, bins, families, place, routing, arguments, conf)
      }.toSeq
      val clients =
        if (!order.isOnDemand || arguments.useColumnFamilies) Map.empty[Int, RowClient]
        else arriving.keys.map { source =>
          source -> new RowClient(order, store.copy(partitionId = source), store.partitionId, routing, arguments, conf)
        }.toMap
      staged = Some(new StagedBins(dir, conf, order, copies, clients, routing))
    }
}

/**
 * The copies for one store, each of which a [[SourceFollower]] brings on in the background.
 *
 * @param clients by source, what asks it for rows
 */
private[binshift] final class StagedBins(
    dir: File, conf: BackgroundConf, order: ShippingOrder, copies: Seq[StagedCopy], clients: Map[Int, RowClient],
    routing: EpochRouting) extends Logging {
  private val followers = copies.map(SourceFollower.join(_, order, routing))

  def begin(epoch: Long, next: Int, dueStep: Option[Int]): Unit = {
    copies.foreach(_.begin(epoch, next, dueStep))
    followers.foreach(_.wake())
  }

  def bytesCopied: Long = copies.map(_.bytesCopied).sum

  /** Whether a step with bins from `source` had better wait. */
  def isAwaited(source: Int): Boolean = copies.exists(c => c.sourcePartition == source && c.isAwaited)

  /** Whether there will be no copy from `source`. */
  def isGivenUp(source: Int): Boolean = copies.exists(c => c.sourcePartition == source && c.isFailed)

  /** The copy from `source`, also if it is not whole yet; `None` if there will be none. */
  def copyOnTheWay(source: Int): Option[StagedCopy] = copies.find(c => c.sourcePartition == source && !c.isFailed)

  /** Asks for `bin` of `copy` before others; who waits for it asks again. */
  def request(copy: StagedCopy, bin: Int): Unit = if (copy.request(bin)) followers.foreach(_.wake())

  /** What asks `source` for rows; `None` if only bins come from it. For the store's task. */
  def rowsFrom(source: Int): Option[RowClient] = clients.get(source)

  /** Waits for the copy if the order is urgent, since its version is the one that is loaded. */
  def copyFrom(source: Int): Option[StagedCopy] =
    copies.find(_.sourcePartition == source).filter { copy =>
      val deadline = System.nanoTime() + (if (order.isUrgent) conf.timeoutMs * 1000000L else 0L)
      while (!copy.isStaged && !copy.isFailed && System.nanoTime() < deadline) Thread.sleep(StagedBins.PollMs)
      copy.isStaged
    }

  def close(): Unit = {
    copies.foreach(SourceFollower.leave(_, order))
    // Not on this thread: a turn that reads a checkpoint may take long.
    ShippingThreads.staging.execute { () =>
      copies.foreach { copy =>
        try copy.close()
        catch {
          case NonFatal(e) => logWarning(s"a copy in $dir could not be closed; its directory is deleted", e)
        }
      }
      Utils.deleteRecursively(dir)
    }
  }
}

private[binshift] object StagedBins {
  val PollMs = 10L
}
