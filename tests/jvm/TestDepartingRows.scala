package org.apache.spark.sql.execution.streaming.state.binshift

import org.apache.spark.sql.execution.streaming.state.binshift.routing.{Delivery, Move, ShippedBin, ShippingOrder}
import org.apache.spark.sql.execution.streaming.state.binshift.statistics.DepartingRows

/** Plays writes to bins that are about to leave. */
object TestDepartingRows {

  /** A bin leaves in two orders with the same step, and seven rows are added to it; returns how many each order knows of. */
  def playTwoOrders(): String = {
    val move = Move(0, 0, 1)
    val ofOrders = Seq(1L, 2L).map { base =>
      val order = ShippingOrder(s"$base", base, base, 0, IndexedSeq(Seq(move)), Delivery.Ahead)
      new DepartingRows(order, Seq(ShippedBin(move.bin, 0)))
    }
    ofOrders.head.onCommit(2)
    DepartingRows.fed(ofOrders).foreach(_.add(move.bin, 7, isInternal = false))
    ofOrders.foreach(_.onCommit(3))
    ofOrders.map(_.since(0, 3).fold("unknown")(_.rows.toString)).mkString("/")
  }
}
