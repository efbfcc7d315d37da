package org.apache.spark.sql.execution.streaming.state.binshift.shipping

import java.nio.ByteBuffer
import java.util.concurrent.ThreadLocalRandom

import scala.collection.mutable

import org.apache.spark.sql.execution.streaming.state.binshift.Faults
import org.apache.spark.sql.execution.streaming.state.binshift.routing.ShippingOrder
import org.apache.spark.sql.execution.streaming.state.StateStoreId

/**
 * The receiving end of a shipment. A chunk that was received is freed, so there is one receiver to a shipment; one that
 * finds that another one is served gives up at once, and its bins come from the checkpoint.
 *
 * Not thread-safe.
 */
private[binshift] final class IncomingShipment(order: ShippingOrder, source: StateStoreId, target: Int) {
  import IncomingShipment._

  private val number = ThreadLocalRandom.current.nextLong(1, Long.MaxValue)
  private val requested = mutable.Set.empty[Int]
  private var next = 0
  private var lookedAt = System.nanoTime() - LookNs

  /**
   * Gives the next chunk to `read`, with its index, and frees it.
   *
   * @param begun the epoch that has begun
   * @return `None` if it is not here yet
   * @throws DamagedShipment if it will never be here
   */
  def receive[T](begun: Long)(read: (Array[Byte], Int) => T): Option[T] = {
    val id = ShipmentFormat.chunkId(order.broadcast, source, target, next)
    ShipmentBlocks.fetch(id) match {
      case Some(chunk) =>
        Faults.at("fetch.chunk", target)
        val result =
          try read(chunk, next)
          finally ShipmentBlocks.remove(id)
        next += 1
        lookedAt = System.nanoTime()
        Some(result)
      case None =>
        if (System.nanoTime() - lookedAt >= LookNs) {
          lookedAt = System.nanoTime()
          // In this order: the chunk may have come since.
          whyNever(begun).filterNot(_ => ShipmentBlocks.isAnywhere(id)).foreach { why =>
            throw new DamagedShipment(s"its piece ${next + 1} will not come: $why")
          }
        }
        None
    }
  }

  /** Asks the source to send `bin` before the others; once. Whether it did. */
  def request(bin: Int): Boolean = requested.add(bin) && {
    val request = ByteBuffer.allocate(Integer.BYTES + java.lang.Long.BYTES).putInt(bin).putLong(number)
    val id = ShipmentFormat.requestId(order.broadcast, source, target, requested.size - 1)
    sender.foreach(ShipmentBlocks.push(_, id, request.array))
    true
  }

  /** The executor that sends; `None` if nobody does any more. */
  private lazy val sender = ShipmentBlocks.locate(ShipmentFormat.markerId(order.broadcast, source))

  /**
   * A source that has bins to send says so before its task ends, hence before the epoch after begins.
   */
  private def whyNever(begun: Long): Option[String] = {
    val marker = ShipmentFormat.markerId(order.broadcast, source)
    ShipmentBlocks.fetch(marker) match {
      case Some(bytes) =>
        val (isOver, sent) = ShipmentMarker.read(bytes, target)
        sent.collect {
          case s if s.chunks > next => "it was sent, and went to another receiver or was lost"
          case s if s.receiver != ShipmentMarker.Nobody && s.receiver != number =>
            "bins are sent as another receiver asks for them"
        }.orElse(Option.when(isOver)("its source gave up"))
      case None =>
        Option.when(begun >= order.base && !ShipmentBlocks.isAnywhere(marker))("nobody sends any more")
    }
  }
}

private object IncomingShipment {
  /** After that time without a chunk, the receiver looks whether there will be one. */
  private val LookNs = 200000000L
}
