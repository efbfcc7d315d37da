package org.apache.spark.sql.execution.streaming.state.binshift.shipping

import org.apache.spark.SparkContext
import org.apache.spark.broadcast.Broadcast
import org.apache.spark.sql.execution.streaming.state.StateStoreId
import org.apache.spark.sql.execution.streaming.state.binshift.routing.{Delivery, Move, ShippingOrder}

/** A new owner that asks an old owner for bins which that one never sends. */
object TestReceiver {
  def open(sc: SparkContext): TestReceiver = new TestReceiver(sc.broadcast(0))
}

final class TestReceiver(broadcast: Broadcast[Int]) {
  private val order = ShippingOrder("order", broadcast.id, base = 1, firstStep = 0, IndexedSeq(Seq(Move(0, 0, 1))),
    Delivery.OnDemand)
  private val shipment = new IncomingShipment(order, StateStoreId("checkpoint", 0, 0), 1, BackgroundConf(Map.empty))

  /** A task asks for a bin in epoch `begun` and looks for it at once. Returns why it won't come, if that is known. */
  def look(begun: Long): String = {
    shipment.request(0, begun)
    try shipment.receive(begun)((_, _) => throw new IllegalStateException("something has come")).fold("")(_.toString)
    catch { case e: DamagedShipment => e.getMessage }
  }

  def close(): Unit = {
    shipment.close()
    broadcast.destroy()
  }
}
