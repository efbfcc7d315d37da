package org.apache.spark.sql.execution.streaming.state.binshift.shipping

import java.nio.ByteBuffer

import org.apache.spark.{SparkContext, SparkEnv}
import org.apache.spark.broadcast.Broadcast
import org.apache.spark.sql.execution.streaming.state.StateStoreId
import org.apache.spark.sql.execution.streaming.state.binshift.BinshiftConf
import org.apache.spark.sql.execution.streaming.state.binshift.routing.{Delivery, Move, ShippingOrder}

/** Partition 0's shipments to partitions 1 and 2, bin by bin on demand, and the receivers' replies. */
object TestSentChunks {
  def open(sc: SparkContext, timeout: String, maxBytesInFlight: String): TestSentChunks =
    new TestSentChunks(sc.broadcast(0), timeout, maxBytesInFlight)
}

final class TestSentChunks(broadcast: Broadcast[Int], timeout: String, maxBytesInFlight: String) {
  private val store = StateStoreId("checkpoint", 0, 0)
  private val order = ShippingOrder("order", broadcast.id, base = 1, firstStep = 0, IndexedSeq(Seq(Move(0, 0, 1), Move(1, 0, 2))),
    Delivery.OnDemand)
  private val sent = {
    val settings = Map("ship.timeout" -> timeout, "ship.maxBytesInFlight" -> maxBytesInFlight)
    new SentChunks(order, store, BackgroundConf(settings.map { case (name, value) => BinshiftConf.Prefix + name -> value }))
  }
  private val sender = marker(1).sender

  /** Sends the next chunk, of the given size, once there is room. */
  def send(target: Int, index: Int, bytes: Int): Unit = sent.send(target, index, new Array[Byte](bytes))

  /** The receiver reports how many chunks it has. */
  def tell(target: Int, chunks: Int): Unit =
    ShipmentBlocks.put(
      ShipmentFormat.receivedId(order.broadcast, store, target, sender), ByteBuffer.allocate(Integer.BYTES).putInt(chunks).array,
      tellDriver = false)

  /** The receiver reports that it wants no more. */
  def giveUp(target: Int): Unit = ShipmentBlocks.put(
    ShipmentFormat.givenUpId(order.broadcast, store, target, sender), Array[Byte](0), tellDriver = false)

  /** Another receiver of `target` has asked for bins. */
  def serveAnother(target: Int): Unit = sent.requestServed(target, receiver = 1)

  /** A receiver waits until it knows that nothing comes, and gives up; returns the reason. */
  def receiveInVain(target: Int): String = {
    val receiver = new IncomingShipment(order, store, target, BackgroundConf(Map.empty))
    try {
      while (receiver.receive(begun = 2)((_, _) => throw new IllegalStateException("something has come")).isEmpty) Thread.sleep(1)
      throw new IllegalStateException("something has come")
    } catch {
      case e: DamagedShipment =>
        receiver.giveUp()
        e.getMessage
    }
  }

  def isHere(target: Int, index: Int): Boolean =
    ShipmentBlocks.isHere(ShipmentFormat.chunkId(order.broadcast, store, target, index, sender))

  /** The number of sent chunks, by the marker. */
  def chunks(target: Int): Int = marker(target).sent.get.chunks

  /** The number of chunks that are no longer here, by the marker. */
  def freed(target: Int): Int = marker(target).sent.get.freed

  def close(): Unit = {
    sent.close()
    broadcast.destroy()
  }

  private def marker(target: Int): ShipmentMarker.Content = {
    val here = SparkEnv.get.blockManager.blockManagerId
    ShipmentMarker.read(ShipmentBlocks.fetchFrom(here, ShipmentFormat.markerId(order.broadcast, store)), target)
  }
}
