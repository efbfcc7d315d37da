package org.apache.spark.sql.execution.streaming.state.binshift.shipping

import java.io.File

import org.apache.spark.SparkContext
import org.apache.spark.broadcast.Broadcast
import org.apache.spark.sql.execution.streaming.state.{RocksDBConf, StateStoreId}
import org.apache.spark.sql.execution.streaming.state.binshift.routing.{Delivery, Move, ShippingOrder}

/** Old owners that can be asked for rows, each by one new owner. */
object TestRowSources {
  def open(sc: SparkContext, count: Int): TestRowSources = new TestRowSources(sc.broadcast(0), count)
}

final class TestRowSources(broadcast: Broadcast[Int], count: Int) {
  private val order = ShippingOrder("order", broadcast.id, base = 1, firstStep = 0,
    IndexedSeq((0 until count).map(source => Move(source, source, count))), Delivery.OnDemand)
  private val sources = (0 until count).map { source =>
    new RowSource(store(source), order, "attempt", Nil, new File("none"), RocksDBConf(), BackgroundConf(Map.empty))
  }
  sources.foreach(_.refuse())

  /** Asks an old owner, as a task does by putting a block into its executor's block store. */
  def ask(source: Int): Unit =
    ShipmentBlocks.put(ShipmentFormat.askId(order.broadcast, store(source), count, 0), new Array[Byte](1), tellDriver = false)

  /** True if the old owner has got the request. */
  def isAsked(source: Int): Boolean = sources(source).isAsked

  def close(): Unit = {
    sources.foreach(_.close())
    broadcast.destroy()
  }

  private def store(source: Int) = StateStoreId("checkpoint", 0, source)
}
