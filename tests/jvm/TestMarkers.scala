package org.apache.spark.sql.execution.streaming.state.binshift

import scala.concurrent.Await
import scala.concurrent.duration.Duration

import org.apache.spark.SparkContext
import org.apache.spark.sql.execution.streaming.state.binshift.shipping.ShipmentBlocks
import org.apache.spark.storage.BlockId

/** A block of an executor that changes, as markers of shipments do, while the driver reads it. */
object TestMarkers {
  private val Size = 40

  /** The number of reads, of failed or partial reads, and whether the driver still knows the block at the end. */
  def readWhileItChanges(sc: SparkContext, changes: Int): String = {
    val broadcast = sc.broadcast(0)
    val name = s"broadcast_${broadcast.id}_o0_default_p0_sending"
    val writing = sc.parallelize(Seq(changes), 1).foreachAsync { times =>
      val id = BlockId(name)
      ShipmentBlocks.put(id, Array.fill(Size)(0.toByte))
      (1 to times).foreach(i => ShipmentBlocks.replaceHere(id, Array.fill(Size)(i.toByte)))
    }
    val id = BlockId(name)
    while (!ShipmentBlocks.isAnywhere(id) && !writing.isCompleted) Thread.sleep(1)
    var (reads, bad) = (0, 0)
    while (!writing.isCompleted) {
      reads += 1
      val isWhole =
        try ShipmentBlocks.locate(id).map(ShipmentBlocks.fetchFrom(_, id)).exists(c => c.length == Size && c.forall(_ == c.head))
        catch {
          case _: Exception => false
        }
      if (!isWhole) bad += 1
    }
    Await.result(writing, Duration.Inf)
    broadcast.destroy(blocking = true)
    // The executor tells the driver once it has removed the block.
    val deadline = System.nanoTime() + 10000000000L
    while (ShipmentBlocks.isAnywhere(id) && System.nanoTime() < deadline) Thread.sleep(10)
    s"""{"reads": $reads, "bad": $bad, "known": ${ShipmentBlocks.isAnywhere(id)}}"""
  }
}
