package org.apache.spark.sql.execution.streaming.state.binshift.shipping

import java.util.concurrent.{CompletableFuture, ThreadLocalRandom}

import scala.collection.mutable
import scala.concurrent.Future
import scala.util.control.NonFatal

import org.apache.spark.TaskKilledException
import org.apache.spark.internal.Logging
import org.apache.spark.sql.execution.streaming.state.StateStoreId
import org.apache.spark.sql.execution.streaming.state.binshift.Faults
import org.apache.spark.sql.execution.streaming.state.binshift.checkpoint.CommittedFile
import org.apache.spark.sql.execution.streaming.state.binshift.keys.KeyRows
import org.apache.spark.sql.execution.streaming.state.binshift.routing.{EpochRouting, ShippingOrder}
import org.apache.spark.sql.execution.streaming.state.binshift.storage.RocksDBArguments

/**
 * Asks the old owner of bins for rows of them, as of the version of the switch. What it asks for goes in one request, or in
 * several one after the other if it is much; answers come from a [[RowSource]].
 *
 * Once anything went wrong it asks no more: the bins themselves then come as they would have come without it.
 *
 * Not thread-safe; used by the task of the store that gets the bins.
 */
private[binshift] final class RowClient(
    order: ShippingOrder, source: StateStoreId, target: Int, routing: EpochRouting, arguments: RocksDBArguments,
    conf: BackgroundConf) extends Logging {
  import RowClient._

  private val receiver = ThreadLocalRandom.current.nextLong(1, Long.MaxValue)
  private val slot = (receiver % RowSource.Slots).toInt
  private val marker = ShipmentFormat.markerId(order.broadcast, source)
  private lazy val owner = ShipmentBlocks.locate(marker)
  /** The attempt whose rows count: a request to the checkpoint, which is made while the first answer is on its way. */
  private lazy val committed = CompletableFuture.supplyAsync(
    () =>
      CommittedFile.attempt(
        source, order.base, SourceChanges.idOf(source, order.base, routing, arguments), arguments.hadoopConf),
    ShippingThreads.links)

  private val waiting = mutable.Queue.empty[IndexedSeq[KeyRows]]
  private var sent: Option[Sent] = None
  private var requests = 0
  private var isOver = false

  /** Asks for the rows of `keys`, unless it asks no more; whether it does. Does not wait for the answer. */
  def ask(keys: Seq[KeyRows]): Boolean = !isOver && {
    waiting ++= keys.toIndexedSeq.grouped(KeysTogether)
    guarded(if (sent.isEmpty) send())
    !isOver
  }

  /** Whether answers are to come. */
  def isAsking: Boolean = sent.nonEmpty

  /**
   * Waits for the rows that were asked for: of each key, unless they are too many. Empty if there is no answer in time, or none
   * that can be used.
   */
  def answers(): Seq[FetchedRows] = {
    val found = mutable.ArrayBuffer.empty[FetchedRows]
    while (sent.nonEmpty) guarded {
      val request = sent.get
      found ++= request.keys.zip(receive(request)).collect { case (key, Some(rows)) => FetchedRows(key, rows) }
      sent = None
      if (waiting.nonEmpty) send()
    }
    found.toSeq
  }

  /** Nobody waits for what was asked for any more. */
  def forget(): Unit = {
    waiting.clear()
    sent = None
  }

  private def send(): Unit = {
    val keys = waiting.dequeue()
    val to = owner.getOrElse(throw new DamagedShipment("nobody sends any more"))
    Faults.at("rows.request", target)
    requests += 1
    val bytes = RowFormat.encode(RowRequest(order.base, receiver, requests, ShipmentBlocks.here, keys))
    val id = ShipmentFormat.askId(order.broadcast, source, target, slot)
    sent = Some(new Sent(keys, () => ShipmentBlocks.push(to, id, Faults.change("rows.request", bytes))))
    committed
  }

  private def receive(request: Sent): IndexedSeq[LinkedRows.Found] = {
    val rows = mutable.ArrayBuffer.empty[LinkedRows.Found]
    var isLast = false
    var piece = 0
    while (!isLast) {
      val answer = RowFormat.answer(await(request, piece))
      if (answer.attempt.isEmpty) throw new DamagedShipment("the old owner cannot look rows up")
      if (answer.base != order.base || answer.attempt != committed.get) {
        throw new DamagedShipment("it is of an attempt of the source's task that was not committed")
      }
      rows ++= answer.rows
      isLast = answer.isLast
      piece += 1
    }
    if (rows.size != request.keys.size) {
      throw new DamagedShipment(s"rows of ${rows.size} keys came, and ${request.keys.size} were asked for")
    }
    rows.toIndexedSeq
  }

  private def await(request: Sent, piece: Int): Array[Byte] = {
    val id = ShipmentFormat.answerId(order.broadcast, source, target, receiver, requests, piece)
    val begun = System.nanoTime()
    var lookedAt = begun
    var content = ShipmentBlocks.takeHere(id)
    while (content.isEmpty) {
      request.failIfNotSent()
      val now = System.nanoTime()
      if (now - begun > conf.timeoutMs * 1000000L) throw new DamagedShipment(s"nothing has come in ${conf.timeoutMs} ms")
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

/** @param rows what the keys of its rows have behind it, with the values */
private[binshift] final case class FetchedRows(key: KeyRows, rows: Seq[(Array[Byte], Array[Byte])])

private object RowClient {
  /** Keys that are asked for at a time. */
  private val KeysTogether = 20000
  private val PollMs = 1L
  /** After that time without an answer, it is looked whether there will be one. */
  private val LookNs = 200000000L
}

/**
 * What is asked for. It is sent again when there is no answer for long: the request may be lost, or the answer, or another
 * attempt of the task may have asked by the same block.
 */
private final class Sent(val keys: IndexedSeq[KeyRows], push: () => Future[Unit]) {
  private var pushed = push()
  private var pushedAt = System.nanoTime()

  def failIfNotSent(): Unit = pushed.value.foreach(_.get)

  def sendAgainIfLate(): Unit = if (System.nanoTime() - pushedAt > Sent.AgainNs) {
    pushed = push()
    pushedAt = System.nanoTime()
  }
}

private object Sent {
  private val AgainNs = 3000000000L
}
