package org.apache.spark.sql.execution.streaming.state.binshift

import org.apache.hadoop.conf.Configuration

import org.apache.spark.SparkEnv
import org.apache.spark.api.java.JavaSparkContext
import org.apache.spark.broadcast.Broadcast
import org.apache.spark.sql.execution.streaming.state.binshift.shipping.{BackgroundConf, WarmStore}

/** Fetches the files of stores ahead, as an executor does at the driver's request. */
object TestWarm {
  def begin(context: JavaSparkContext, roots: Array[String]): Order = {
    val broadcast = context.sc.broadcast(Array.emptyByteArray)
    roots.zipWithIndex.foreach { case (root, place) =>
      WarmStore.begin(root, place, broadcast.id, place, BackgroundConf(Map.empty[String, String]), new Configuration)
    }
    new Order(broadcast, roots.length)
  }

  final class Order(broadcast: Broadcast[Array[Byte]], stores: Int) {
    def isReady: Boolean =
      (0 until stores).forall(p => SparkEnv.get.blockManager.master.getLocations(WarmStore.readyBlock(broadcast.id, p)).nonEmpty)

    def close(): Unit = broadcast.destroy()
  }
}
