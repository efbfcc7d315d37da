package org.apache.spark.sql.execution.streaming.state.binshift.shipping

import java.io.File
import java.util.concurrent.{ConcurrentHashMap, TimeUnit}

import scala.collection.mutable
import scala.concurrent.{ExecutionContext, Future}
import scala.concurrent.duration.Duration
import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal

import org.apache.spark.internal.Logging
import org.apache.spark.sql.execution.streaming.state.binshift.{Faults, OrWarn}
import org.apache.spark.sql.execution.streaming.state.binshift.keys.NumberedFamily
import org.apache.spark.sql.execution.streaming.state.binshift.routing.ShippingOrder
import org.apache.spark.sql.execution.streaming.state.{RocksDBConf, StateStoreId}
import org.apache.spark.util.ThreadUtils

/**
 * Answers new owners of bins that ask for rows before the bins have arrived. The rows come from the version that was linked when it
 * was committed.
 *
 * A request is a block that the new owner has put into this executor's block store. One thread looks for the requests to all stores,
 * without the driver. Others read rows and put the answers into the block store of the executor that asked.
 *
 * @param attempt  identifies the commit of the rows, see [[CommittedFile]]
 * @param families families of the version, none of which is read in order
 * @param dir      the linked version, which stays until this is closed
 */
private[binshift] final class RowSource(
    private val store: StateStoreId, order: ShippingOrder, attempt: String, families: Seq[NumberedFamily], dir: File,
    dbConf: RocksDBConf,
    conf: BackgroundConf) extends OrWarn {
  import RowSource._

  private val ids = for {
    target <- order.leaving(store.partitionId).keys.toSeq.sorted
    slot <- 0 until Slots
  } yield (target, ShipmentFormat.askId(order.broadcast, store, target, slot))

  /** `None` before the version is opened, and if that fails. */
  private var rows: Option[LinkedRows] = None
  private var isClosed = false
  @volatile private var wasAsked = false
  /** By receiver, the latest request, and when it was answered; `None` while it is being answered. */
  private val answered = mutable.Map.empty[Long, (Int, Option[Long])]

  /** True if new owners fetch rows, so that they don't wait for bins. */
  def isAsked: Boolean = wasAsked

  /** Begins to answer, because the links exist now. */
  def begin(): Unit = {
    add(this)
    ShippingThreads.answers.execute(() =>
      orWarn(s"$store cannot look up rows for order ${order.id}; whole bins go instead")(opened(): Unit))
  }

  /** Tells everybody who asks that there will be no rows, because there are no links. */
  def refuse(): Unit = add(this)

  /** Stops answering. The latest requests get no answer. */
  def close(): Unit = {
    remove(this)
    synchronized {
      isClosed = true
      rows.foreach(_.close())
      rows = None
    }
    ids.foreach { case (_, id) => ShipmentBlocks.removeHere(id) }
  }

  /** Takes the requests that have arrived; returns whether there were any. */
  private def poll(): Boolean = {
    Faults.at("rows.poll", store.partitionId)
    ids.count { case (target, id) =>
      ShipmentBlocks.takeHere(id).exists { content =>
        wasAsked = true
        ShippingThreads.answers.execute(() => answer(target, content))
        true
      }
    } > 0
  }

  private def answer(target: Int, content: Array[Byte]): Unit =
    orWarn(s"$store could not answer partition $target, which asks for rows") {
      val request = RowFormat.request(content)
      if (begins(request)) {
        try answer(target, request)
        finally answered.synchronized(answered(request.receiver) = (request.number, Some(System.nanoTime())))
      }
    }

  /**
   * Returns true if a request should be answered: it wasn't answered yet, or its answer seems to be lost. (Receivers ask again if
   * they wait long.)
   */
  private def begins(request: RowRequest): Boolean = answered.synchronized {
    val isWanted = answered.get(request.receiver).forall { case (number, at) =>
      request.number > number || request.number == number && at.exists(System.nanoTime() - _ > AgainNs)
    }
    if (isWanted) answered(request.receiver) = (request.number, None)
    isWanted
  }

  private def answer(target: Int, request: RowRequest): Unit = {
    var piece = 0
    try {
      Faults.at("rows.answer", store.partitionId)
      if (request.base != order.base) throw new DamagedShipment(s"version ${request.base} is asked for")
      // A request is read and answered in several pieces, to hold little in memory.
      var (done, bytes) = (0, 0L)
      var pushed = Future.unit
      while (done < request.keys.size && hasCome(pushed)) {
        val rows =
          if (bytes < MaxBytes) read(request, done) else IndexedSeq.fill[LinkedRows.Found](request.keys.size - done)(None)
        done += rows.size
        bytes += rows.iterator.flatten.map(LinkedRows.sizeOf).sum
        pushed = send(target, request, piece, RowAnswer(order.base, attempt, isLast = done == request.keys.size, rows))
        piece += 1
      }
    } catch {
      case NonFatal(e) =>
        logWarning(s"$store could not look up ${request.keys.size} rows for partition $target; whole bins go instead", e)
        send(target, request, piece, RowAnswer(order.base, "", isLast = true, IndexedSeq.empty))
    }
  }

  /** True if the piece before has arrived, so that only one is in flight. If it hasn't, the receiver will ask for all again. */
  private def hasCome(pushed: Future[Unit]): Boolean =
    ThreadUtils.awaitReady(pushed, Duration(conf.timeoutMs, TimeUnit.MILLISECONDS)).value.exists(_.isSuccess)

  private def send(target: Int, request: RowRequest, piece: Int, answer: RowAnswer): Future[Unit] = {
    val bytes = Faults.change("rows.answer", RowFormat.encode(answer))
    ShippingThreads.charge(bytes.length, conf.maxBytesPerSecond, conf.areAllCoresBusy)
    val id = ShipmentFormat.answerId(order.broadcast, store, target, request.receiver, request.number, piece)
    // Not on this thread: Spark connects on the thread that sends, which may take minutes, and few threads look rows up.
    val pushed = Future {
      Faults.at("rows.push", store.partitionId)
      // A block that is put after the end of the order would never be removed.
      if (synchronized(isClosed)) Future.unit else ShipmentBlocks.push(request.from, id, bytes)
    }(ExecutionContext.fromExecutor(ShippingThreads.fetches)).flatten
    pushed.failed.foreach { e =>
      logWarning(s"rows of $store did not come to ${request.from}, which will ask for them again", e)
    }(ExecutionContext.parasitic)
    pushed
  }

  private def read(request: RowRequest, from: Int): IndexedSeq[LinkedRows.Found] = {
    val linked = opened()
    linked.use(_.first(request.keys.slice(from, from + KeysTogether), request.numbers)).getOrElse(
      throw new IllegalStateException(s"order ${order.id} is over"))
  }

  private def opened(): LinkedRows = synchronized {
    if (isClosed) throw new IllegalStateException(s"order ${order.id} is over")
    rows.getOrElse {
      val made = new LinkedRows(dir, families, dbConf)
      rows = Some(made)
      made
    }
  }
}

private object RowSource extends Logging {
  /** How many blocks stores of one partition have for requests, because several attempts of its task may ask at the same time. */
  val Slots = 4
  private val KeysTogether = 2000
  /** If the rows of a request take more bytes, the remaining keys get none, and their bins come. */
  private val MaxBytes = 64L << 20
  /** An answer that was sent less than this time ago is assumed to be on its way. */
  private val AgainNs = 1000000000L

  /** How often requests are looked for while some come, and if none has come for long; in milliseconds. */
  private val MinPollMs = 2L
  private val MaxPollMs = 20L
  /** After this many polls without a request, polls become rarer. */
  private val Patience = 1000

  private val sources = ConcurrentHashMap.newKeySet[RowSource]()
  private var isPolling = false
  private var idle = 0

  private def add(source: RowSource): Unit = synchronized {
    sources.add(source)
    idle = 0
    if (!isPolling) {
      isPolling = true
      schedule(0)
    }
  }

  private def remove(source: RowSource): Unit = sources.remove(source)

  private def schedule(ms: Long): Unit =
    ShippingThreads.polling.schedule((() => pollAll()): Runnable, ms, TimeUnit.MILLISECONDS)

  /** Polls again even if a store or the thread fails, because tasks wait for answers. */
  private def pollAll(): Unit = {
    var found = false
    try found = sources.asScala.toSeq.count(pollOne) > 0
    finally {
      synchronized {
        idle = if (found) 0 else idle + 1
        isPolling = !sources.isEmpty
        if (isPolling) schedule(if (idle < Patience) MinPollMs else MaxPollMs)
      }
    }
  }

  private def pollOne(source: RowSource): Boolean =
    try source.poll()
    catch {
      case e: Throwable =>
        logWarning(s"requests for rows of ${source.store} could not be looked for; the next look tries again", e)
        if (!NonFatal(e)) throw e
        false
    }
}
