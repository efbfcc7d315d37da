package org.apache.spark.sql.execution.streaming.state.binshift.shipping

import java.util.concurrent.{CompletableFuture, ThreadLocalRandom}

import scala.collection.mutable
import scala.concurrent.{ExecutionContext, Future}
import scala.util.control.NonFatal

import org.apache.spark.TaskKilledException
import org.apache.spark.internal.Logging
import org.apache.spark.sql.execution.streaming.state.StateStoreId
import org.apache.spark.sql.execution.streaming.state.binshift.Faults
import org.apache.spark.sql.execution.streaming.state.binshift.checkpoint.CommittedFile
import org.apache.spark.sql.execution.streaming.state.binshift.keys.KeyRows
import org.apache.spark.sql.execution.streaming.state.binshift.recovery.CommittedChanges
import org.apache.spark.sql.execution.streaming.state.binshift.routing.{EpochRouting, ShippingOrder}
import org.apache.spark.sql.execution.streaming.state.binshift.storage.RocksDBArguments

/**
 * Asks the old owner of bins for single rows, as of the version of the switch. Keys go in one request, or in several, one after the
 * other, if there are many. A [[RowSource]] answers.
 *
 * Once anything goes wrong, or many bytes have come, it asks no more. The bins then come as they would have come without it.
 *
 * Not thread-safe; used by the task of the store that gets the bins.
 *
 * @param numbers numbers of that store's families, by name
 */
private[binshift] final class RowClient(
    order: ShippingOrder, source: StateStoreId, target: Int, numbers: Map[String, Option[Short]], routing: EpochRouting,
    arguments: RocksDBArguments, conf: BackgroundConf) extends Logging {
  import RowClient._

  private val receiver = ThreadLocalRandom.current.nextLong(1, Long.MaxValue)
  private val slot = (receiver % RowSource.Slots).toInt
  private val marker = ShipmentFormat.markerId(order.broadcast, source)
  private lazy val owner = ShipmentBlocks.locate(marker)
  /** The attempt whose rows count. Asks the checkpoint, while the first answer is on its way. */
  private lazy val committed = CompletableFuture.supplyAsync(
    () =>
      CommittedFile.attempt(
        source, order.base, CommittedChanges.idOf(source, order.base, routing, arguments), arguments.hadoopConf),
    ShippingThreads.lookups)

  private val waiting = mutable.Queue.empty[IndexedSeq[KeyRows]]
  /** Keys that were asked for, by family, without anybody waiting for the answer yet. A task may note keys that it never looks up. */
  private val asked = mutable.Map.empty[String, java.util.TreeSet[Array[Byte]]]
  private var sent: Option[Sent] = None
  private var requests = 0
  private var bytes = 0L
  private var isOver = false

  /** Asks for the rows of `keys`, each once, and returns whether it asked. Doesn't wait for the answer. */
  def ask(keys: Seq[KeyRows]): Boolean = !isOver && {
    val fresh = keys.filter(key => asked.getOrElseUpdate(key.family, new java.util.TreeSet(KeyRows.Order)).add(key.key))
    // Sorted, because neighbours are looked up together.
    waiting ++= fresh.toIndexedSeq.sortBy(_.key)(KeyRows.Order).grouped(KeysTogether)
    guarded(if (sent.isEmpty && waiting.nonEmpty) sendUnlessMuch())
    !isOver
  }

  /**
   * Waits for the rows that were asked for, and passes them on as they come, except those of keys with too many rows. Ends early if no
   * answer comes in time, or an answer can't be used.
   */
  def foreachAnswer(consume: Seq[FetchedRows] => Unit): Unit = while (sent.nonEmpty) {
    var come = Seq.empty[FetchedRows]
    guarded {
      come = receive(sent.get)
      if (sent.get.isAnswered) {
        sent = None
        if (waiting.nonEmpty) sendUnlessMuch()
      }
    }
    consume(come)
  }

  /** Nobody waits for the outstanding answers any more. */
  def forget(): Unit = {
    waiting.clear()
    asked.clear()
    sent = None
  }

  /** Stops asking, because there is no room for more rows. */
  def stop(): Unit = {
    isOver = true
    forget()
    logInfo(s"partition $target has no room for more rows of $source; whole bins come instead")
  }

  private def send(): Unit = {
    val keys = waiting.dequeue()
    val to = owner.getOrElse(throw new DamagedShipment("nobody sends any more"))
    Faults.at("rows.request", target)
    requests += 1
    val content = RowFormat.encode(RowRequest(order.base, receiver, requests, ShipmentBlocks.here, keys, numbers))
    ShippingThreads.charge(content.length, conf.maxBytesPerSecond, conf.areAllCoresBusy)
    val id = ShipmentFormat.askId(order.broadcast, source, target, slot)
    def push() = {
      Faults.at("rows.ask", target)
      ShipmentBlocks.push(to, id, Faults.change("rows.request", content))
    }
    sent = Some(new Sent(keys, () => push()))
    committed
  }

  /** Sends a request, unless so many bytes have come that whole bins are the better way. */
  private def sendUnlessMuch(): Unit =
    if (bytes < MaxBytes) send()
    else {
      isOver = true
      forget()
      logInfo(s"partition $target has fetched $bytes bytes of $source by row; whole bins come instead")
    }

  /** Waits for the next piece of the answer. */
  private def receive(request: Sent): Seq[FetchedRows] = {
    val answer = RowFormat.answer(await(request, request.pieces))
    if (answer.attempt.isEmpty) throw new DamagedShipment("the old owner cannot look rows up")
    if (answer.base != order.base || answer.attempt != committed.get) {
      throw new DamagedShipment("it is of an attempt of the source's task that was not committed")
    }
    val keys = request.take(answer.rows.size, answer.isLast)
    bytes += keys.iterator.map(_.key.length.toLong).sum + answer.rows.iterator.flatten.map(LinkedRows.sizeOf).sum
    keys.foreach(key => asked(key.family).remove(key.key))
    keys.zip(answer.rows).collect { case (key, Some(rows)) => FetchedRows(key, rows) }
  }

  private def await(request: Sent, piece: Int): Array[Byte] = {
    val id = ShipmentFormat.answerId(order.broadcast, source, target, receiver, requests, piece)
    var lookedAt = System.nanoTime()
    var content = ShipmentBlocks.takeHere(id)
    while (content.isEmpty) {
      request.failIfNotSent()
      val now = System.nanoTime()
      if (now - request.heardAt > conf.timeoutMs * 1000000L)
        throw new DamagedShipment(s"nothing has come in ${conf.timeoutMs} ms")
      if (now - lookedAt > LookNs) {
        lookedAt = now
        if (!ShipmentBlocks.isAnywhere(marker)) throw new DamagedShipment("nobody sends any more")
        request.sendAgainIfLate()
      }
      Thread.sleep(PollMs)
      content = ShipmentBlocks.takeHere(id)
    }
    content.get
  }

  private def guarded(body: => Unit): Unit =
    try body
    catch {
      case e: TaskKilledException => throw e
      case NonFatal(e) =>
        isOver = true
        forget()
        logWarning(
          s"rows of $source cannot be asked for by partition $target; whole bins come instead: ${e.getMessage}",
          if (e.isInstanceOf[DamagedShipment]) null else e)
    }
}

/** @param rows the rows' values, each with the rest of its key, which distinguishes it from the others */
private[binshift] final case class FetchedRows(key: KeyRows, rows: Seq[(Array[Byte], Array[Byte])])

private object RowClient {
  /** How many keys are asked for at a time. */
  private val KeysTogether = 20000
  /** Bytes of keys and values after which no more are asked for. */
  private val MaxBytes = 64L << 20
  private val PollMs = 1L
  /** After this time without an answer, it checks whether there will be one. */
  private val LookNs = 200000000L
}

/**
 * A request that was sent. It is sent again if no answer comes for long: the request or the answer may be lost, or another attempt of
 * the task may have used the same block.
 *
 * It is sent on another thread than the task's, because Spark connects on the thread that sends, which takes minutes if the machine
 * doesn't answer.
 */
private final class Sent(keys: IndexedSeq[KeyRows], push: () => Future[Unit]) {
  /** Completes once there is a connection, with a future that tells whether the request has arrived. */
  private var pushed = begin()
  private var sentAt = System.nanoTime()
  /** When the request was first sent, or a piece of the answer was taken. Meanwhile, the task may have waited for others. */
  var heardAt: Long = sentAt
  private var taken = 0
  /** How many pieces of the answer have arrived. */
  var pieces = 0
  /** True if all pieces have arrived. */
  var isAnswered = false

  /** Removes and returns the keys whose rows are in the next piece of the answer. */
  def take(n: Int, isLast: Boolean): IndexedSeq[KeyRows] = {
    heardAt = System.nanoTime()
    val from = taken
    taken += n
    pieces += 1
    isAnswered = isLast
    if (taken > keys.size || isLast && taken < keys.size) {
      throw new DamagedShipment(s"rows of $taken keys came, and ${keys.size} were asked for")
    }
    keys.slice(from, taken)
  }

  def failIfNotSent(): Unit = pushed.value.foreach(_.get.value.foreach(_.get))

  def sendAgainIfLate(): Unit = if (pushed.isCompleted && System.nanoTime() - math.max(sentAt, heardAt) > Sent.AgainNs) {
    pushed = begin()
    sentAt = System.nanoTime()
  }

  private def begin(): Future[Future[Unit]] = Future(push())(ExecutionContext.fromExecutor(ShippingThreads.fetches))
}

private object Sent {
  private val AgainNs = 3000000000L
}
