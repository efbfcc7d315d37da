package org.apache.spark.sql.execution.streaming.state.binshift.shipping

import java.io.File
import java.nio.ByteBuffer
import java.util.concurrent.{CompletableFuture, TimeUnit}
import java.util.concurrent.atomic.AtomicBoolean

import scala.collection.mutable
import scala.util.control.NonFatal

import org.rocksdb.{RocksDB => NativeRocksDB}

import org.apache.spark.internal.Logging
import org.apache.spark.sql.execution.streaming.state.binshift.Faults
import org.apache.spark.sql.execution.streaming.state.binshift.keys.ColumnFamily
import org.apache.spark.sql.execution.streaming.state.binshift.routing.ShippingOrder
import org.apache.spark.sql.execution.streaming.state.binshift.storage.{RocksDBFields, WholeFiles}
import org.apache.spark.sql.execution.streaming.state.StateStoreId
import org.apache.spark.util.Utils

/**
 * Sends the bins that leave a store, as they are at the version that was just committed. There is one per order and store.
 *
 * It is created on the task's thread right after the commit, and does everything else in the background. First it makes hard links
 * to the database's files, which keep the version whatever the database does afterwards. RocksDB has to write out its memory before
 * that. The epoch that commits doesn't wait for it, but the next epoch does, if it comes so soon ([[awaitLinks]]). Then the rows
 * are read and sent, those of earlier steps first.
 *
 * @param attempt  identifies the commit of the rows, see [[CommittedFile]]
 * @param hasBegun whether an epoch has begun, as far as the tasks of this executor know
 */
private[binshift] final class Exporter(
    store: StateStoreId,
    order: ShippingOrder,
    attempt: String,
    conf: BackgroundConf,
    db: ShippingStore,
    useColumnFamilies: Boolean,
    hasBegun: Long => Boolean) extends Logging {
  import Exporter._

  private val leaving = order.leaving(store.partitionId)
  /** On demand: the bins for each partition that were not sent yet, most touched first. */
  private val waiting = mutable.Map.empty[Int, Seq[Int]]
  if (order.isOnDemand) leaving.foreach { case (target, bins) =>
    waiting(target) = bins.map(_.bin).sortBy(bin => (-db.touches(bin), bin))
  }
  private val families = ColumnFamily.numbered(db, useColumnFamilies)
  private val dir = new File(db.localRootDir.getParentFile, s"binshift-export-${java.util.UUID.randomUUID()}")
  private val linked = new File(dir, "linked")
  private val isReadInOrder = families.exists(_.family.isReadInOrder)

  private val madeAt = System.nanoTime()
  @volatile private var isCancelled = false
  @volatile private var isEnded = false

  /** On demand, new owners may ask for rows until the order is over, unless operators scan families in order. */
  private val rows = Option.when(order.isOnDemand && !isReadInOrder)(
    new RowSource(store, order, attempt, families, linked, db.conf, conf))
  private val chunks = new SentChunks(order, store, conf)
  private val isStarted = new AtomicBoolean(false)

  private val links = {
    val native = RocksDBFields.native(db)
    CompletableFuture.runAsync(() => begin(native), ShippingThreads.links)
  }

  /** Returns when the database may change or be closed. Works on an interrupted thread, too. */
  def awaitLinks(): Unit = links.handle[Unit]((_, _) => ()).join()

  /** Stops sending. Waits only for the links. Blocks that were sent are removed with the order's broadcast. */
  def cancel(): Unit = {
    isCancelled = true
    awaitLinks()
    rows.foreach(_.close())
    endUnstarted()
    chunks.close()
    removeLinks()
  }

  private def endUnstarted(): Unit = if (isStarted.compareAndSet(false, true)) end()

  private def end(): Unit = {
    isEnded = true
    chunks.end()
    removeLinks()
  }

  /** Deletes the linked version once nobody can need it. */
  private def removeLinks(): Unit = synchronized {
    if (isEnded && (isCancelled || rows.isEmpty)) Utils.deleteRecursively(dir)
  }

  private def begin(native: NativeRocksDB): Unit =
    try {
      Faults.at("export.link", store.partitionId)
      Utils.createDirectory(dir)
      WholeFiles.link(native, linked)
      rows.foreach(_.begin())
      if (order.isOnDemand) runBehindRows() else ShippingThreads.exports.execute(() => run())
    } catch {
      case NonFatal(e) =>
        warn(e)
        rows.foreach(_.refuse())
        endUnstarted()
    }

  /**
   * If new owners can ask for rows, sends bins only when their first epoch is over, or somebody waits for a bin. In that epoch, only
   * the rows that it touches travel. No thread is blocked meanwhile.
   */
  private def runBehindRows(): Unit = {
    val waits =
      try isBehindRows
      catch { case NonFatal(_) => false }
    if (waits) ShippingThreads.polling.schedule((() => runBehindRows()): Runnable, PollMs, TimeUnit.MILLISECONDS)
    else ShippingThreads.onDemand.execute(() => run())
  }

  /** Returns true if sending should wait for the new owners' first epoch. */
  private def isBehindRows: Boolean = rows.nonEmpty && !isCancelled && !hasBegun(order.base + 1) &&
    System.nanoTime() - madeAt < FirstEpochNs &&
    !leaving.keys.exists(target => ShipmentBlocks.isHere(ShipmentFormat.requestId(order.broadcast, store, target, 0)))

  private def run(): Unit = if (isStarted.compareAndSet(false, true)) {
    try {
      Faults.at("export.start", store.partitionId)
      WholeFiles.reading(linked, db.conf)(send)
    } catch {
      case _: InterruptedException | _: Cancelled => logInfo(s"$store: order ${order.id} is cancelled")
      case NonFatal(e) => warn(e)
    } finally {
      end()
    }
  }

  private def warn(e: Throwable): Unit =
    logWarning(
      s"$store could not send its bins for order ${order.id}; their new owners read them from the checkpoint", e)

  private def send(snapshot: NativeRocksDB): Unit = {
    val writers = leaving.keys.map { target =>
      target -> new ShipmentFormat.Writer(order.base, attempt, families, chunks.chunkBytes, publish(target, _, _, _))
    }.toMap
    val sender = new BinSender(snapshot, families, writers, () => if (isCancelled) throw new Cancelled)
    if (order.isOnDemand && !isReadInOrder) sendOnDemand(sender, writers)
    else if (order.isOnDemand) sendTogether(sender, writers)
    else sendByStep(sender)
    writers.values.foreach(_.close())
  }

  private def sendByStep(sender: BinSender): Unit =
    leaving.values.flatten.map(_.step).toSeq.distinct.sorted.foreach { step =>
      sender.send(step, leaving.view.mapValues(_.filter(_.step == step).map(_.bin)).filter(_._2.nonEmpty).toMap)
    }

  /**
   * Sends all bins at once. Sending some of them would cost a look through each family that is read in order. Operators with such
   * families scan one in each epoch anyway, and that waits for all bins.
   */
  private def sendTogether(sender: BinSender, writers: Map[Int, ShipmentFormat.Writer]): Unit = {
    sender.send(order.firstStep, waiting.toMap)
    waiting.foreach { case (target, bins) => writers(target).endPart(order.firstStep, bins) }
  }

  /**
   * Sends a bin at once if its new owner asks for it, together with others. The more often that owner has asked, the more bins go
   * together, because it seems to touch many bins in an epoch. The rest follow at the pace of background work.
   */
  private def sendOnDemand(sender: BinSender, writers: Map[Int, ShipmentFormat.Writer]): Unit = {
    val asked = mutable.Map.empty[Int, Int].withDefaultValue(0)
    var parts = 0
    // Bins that have been sent in a part that isn't complete yet.
    var open: Option[OpenPart] = None
    def send(target: Int, part: Int, bins: Seq[Int]): Unit = {
      sender.send(part, Map(target -> bins))
      val left = waiting(target).diff(bins)
      if (left.isEmpty) waiting -= target else waiting(target) = left
    }
    def part(target: Int, bins: Seq[Int]): Unit = {
      parts += 1
      send(target, parts, bins)
      writers(target).endPart(parts, bins)
    }
    def endOpen(): Unit = {
      open.foreach(o => writers(o.target).endPart(o.part, o.bins))
      open = None
    }
    // New owners that fetch rows don't wait for bins. So bins go in their order, and as many together as make a file.
    def together(target: Int): Unit = {
      val at = open.getOrElse {
        parts += 1
        OpenPart(target, parts, Nil, sender.bytesRead)
      }
      val next = waiting.getOrElse(target, Nil).filter(bin => at.bins.forall(_ < bin)).minOption
      next.foreach(bin => send(target, at.part, Seq(bin)))
      open = Some(at.copy(bins = at.bins ++ next))
      if (next.isEmpty || !waiting.contains(target) || sender.bytesRead - at.begun >= FileBytes) endOpen()
    }
    while (waiting.nonEmpty || open.nonEmpty) {
      if (isCancelled) throw new Cancelled
      val requests = waiting.keys.toSeq.sorted.flatMap { target => request(target, asked(target)).map(target -> _) }
      requests.foreach { case (target, bin) =>
        asked(target) += 1
        if (open.exists(o => o.target == target && o.bins.contains(bin))) endOpen()
        waiting.get(target).filter(_.contains(bin)).foreach { bins =>
          part(target, bin +: bins.filter(_ != bin).take(math.min(1 << (asked(target) - 1), MaxTogether) - 1))
        }
      }
      if (requests.isEmpty) {
        if (ShippingThreads.maySend()) {
          val target = open.fold(waiting.keys.min)(_.target)
          if (open.nonEmpty || rows.exists(_.isAsked)) together(target) else part(target, waiting(target).take(1))
        } else Thread.sleep(PollMs)
      }
    }
  }

  private def request(target: Int, index: Int): Option[Int] = {
    val id = ShipmentFormat.requestId(order.broadcast, store, target, index)
    ShipmentBlocks.takeHere(id).map { content =>
      val request = ByteBuffer.wrap(content)
      val bin = request.getInt
      chunks.requestServed(target, request.getLong)
      bin
    }
  }

  /** The pace counts uncompressed rows, because handling rows is what takes time. */
  private def publish(target: Int, index: Int, chunk: Array[Byte], size: Int): Unit = {
    if (order.isOnDemand) ShippingThreads.charge(size, conf.maxBytesPerSecond, conf.areAllCoresBusy)
    else if (order.isAhead) ShippingThreads.pace(size, conf.maxBytesPerSecond, conf.areAllCoresBusy)
    Faults.at("export.chunk", store.partitionId)
    chunks.send(target, index, Faults.change("export.chunk", chunk))
  }
}

private object Exporter {
  /** The most bins that are sent together on demand. */
  private val MaxTogether = 16
  private val PollMs = 10L
  /** After this time, a retired store sends its bins even if no task of the query runs on its executor any more. */
  private val FirstEpochNs = 5000000000L
  /** Bytes of the bins that go together when nobody waits for them. */
  private val FileBytes = 16L << 20
}

/** Bins of `target` that go together; `begun` bytes had been sent when the first of them did. */
private final case class OpenPart(target: Int, part: Int, bins: Seq[Int], begun: Long)
