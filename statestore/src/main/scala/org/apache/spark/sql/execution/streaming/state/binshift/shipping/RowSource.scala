package org.apache.spark.sql.execution.streaming.state.binshift.shipping

import java.io.File
import java.util.concurrent.{ConcurrentHashMap, TimeUnit}

import scala.collection.mutable
import scala.concurrent.{ExecutionContext, Future}
import scala.concurrent.duration.Duration
import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal

import org.apache.spark.internal.Logging
import org.apache.spark.sql.execution.streaming.state.binshift.Faults
import org.apache.spark.sql.execution.streaming.state.binshift.keys.NumberedFamily
import org.apache.spark.sql.execution.streaming.state.binshift.routing.ShippingOrder
import org.apache.spark.sql.execution.streaming.state.{RocksDBConf, StateStoreId}
import org.apache.spark.util.ThreadUtils

/**
 * Answers new owners of bins that ask for rows before the bins have come: with those of the version that was linked when it
 * was committed.
 *
 * A request is a block that the new owner has put into the store of this executor. One thread looks for those of all stores,
 * without the driver; others read rows and put the answers into the store of the executor that asked.
 *
 * @param attempt  which commit the rows are of, see [[CommittedFile]]
 * @param families those that the version has, none of which is read in order
 * @param dir      the linked version, which stays until this is closed
 */
private[binshift] final class RowSource(
    private val store: StateStoreId, order: ShippingOrder, attempt: String, families: Seq[NumberedFamily], dir: File,
    dbConf: RocksDBConf,
    conf: BackgroundConf) extends Logging {
  import RowSource._

  private val ids = for {
    target <- order.leaving(store.partitionId).keys.toSeq.sorted
    slot <- 0 until Slots
  } yield (target, ShipmentFormat.askId(order.broadcast, store, target, slot))

  /** `None` until it is opened, and if it could not be. */
  private var rows: Option[LinkedRows] = None
  private var isClosed = false
  @volatile private var wasAsked = false
  /** By receiver, the last request that was answered or is, and when: `None` as long as it is. */
  private val answered = mutable.Map.empty[Long, (Int, Option[Long])]

  /** Whether new owners fetch rows, so that they do not wait for bins. */
  def isAsked: Boolean = wasAsked

  /** The links are there: begins to answer. */
  def begin(): Unit = {
    add(this)
    ShippingThreads.answers.execute { () =>
      try opened()
      catch {
        case NonFatal(e) => logWarning(s"$store cannot look up rows for order ${order.id}; whole bins go instead", e)
      }
    }
  }

  /** There are no links: says so to whoever asks. */
  def refuse(): Unit = add(this)

  /** Nobody asks any more; what was asked for last gets no answer. */
  def close(): Unit = {
    remove(this)
    synchronized {
      isClosed = true
      rows.foreach(_.close())
      rows = None
    }
    ids.foreach { case (_, id) => ShipmentBlocks.removeHere(id) }
  }

  /** Takes the requests that are here; whether there were any. */
  private def poll(): Boolean = {
    Faults.at("rows.poll", store.partitionId)
    Faults.at(s"rows.poll.${store.partitionId}", store.partitionId)
    ids.count { case (target, id) =>
      ShipmentBlocks.takeHere(id).exists { content =>
        wasAsked = true
        ShippingThreads.answers.execute(() => answer(target, content))
        true
      }
    } > 0
  }

  private def answer(target: Int, content: Array[Byte]): Unit =
    try {
      val request = RowFormat.request(content)
      if (begins(request)) {
        try answer(target, request)
        finally answered.synchronized(answered(request.receiver) = (request.number, Some(System.nanoTime())))
      }
    } catch {
      case NonFatal(e) => logWarning(s"$store could not answer partition $target, which asks for rows", e)
    }

  /** Who waits for long asks again: whether the request is one that was not answered, or whose answer seems to be lost. */
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
      // What is asked for in one piece is read and sent in several, so that little is held in memory.
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

  /** Whether the piece before is there, so that one waits at a time; else all are asked for again. */
  private def hasCome(pushed: Future[Unit]): Boolean =
    ThreadUtils.awaitReady(pushed, Duration(conf.timeoutMs, TimeUnit.MILLISECONDS)).value.exists(_.isSuccess)

  private def send(target: Int, request: RowRequest, piece: Int, answer: RowAnswer): Future[Unit] = {
    val bytes = Faults.change("rows.answer", RowFormat.encode(answer))
    ShippingThreads.charge(bytes.length, conf.maxBytesPerSecond, conf.areAllCoresBusy)
    val id = ShipmentFormat.answerId(order.broadcast, store, target, request.receiver, request.number, piece)
    // Spark connects on the thread that sends, which takes minutes where the machine does not answer. Few look rows up.
    val pushed = Future {
      Faults.at("rows.push", store.partitionId)
      // A block that came after the end of the order would stay.
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
  /** Blocks by which stores of one partition may ask at the same time: those of several attempts of its task. */
  val Slots = 4
  private val KeysTogether = 2000
  /** Of a request's keys, those behind so many bytes get no rows, and their bins come. */
  private val MaxBytes = 64L << 20
  /** An answer that was sent as short a time ago is on its way. */
  private val AgainNs = 1000000000L

  /** How often requests are looked for while some come, and when none has come for long; milliseconds. */
  private val MinPollMs = 2L
  private val MaxPollMs = 20L
  /** Polls without a request after which they are rarer. */
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

  /** Whatever goes wrong, with a store or with the thread, it polls again: tasks wait for answers. */
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
        logWarning(s"requests for rows of ${source.store} could not be looked for; they are again", e)
        if (!NonFatal(e)) throw e
        false
    }
}
