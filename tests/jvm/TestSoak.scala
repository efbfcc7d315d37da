package org.apache.spark.sql.execution.streaming.state.binshift

import java.lang.management.ManagementFactory

import org.json4s.JsonDSL._
import org.json4s.jackson.JsonMethods.{compact, render}

import org.apache.spark.SparkEnv
import org.apache.spark.storage.BroadcastBlockId

/** What a soak looks at in the driver. */
object TestSoak {
  /** JSON: heap in use after what nobody holds was collected, bytes; blocks and broadcasts that the driver knows of. */
  def sample(): String = {
    System.gc()
    val heap = ManagementFactory.getMemoryMXBean.getHeapMemoryUsage.getUsed
    val ids = SparkEnv.get.blockManager.master.getMatchingBlockIds(_ => true, askStorageEndpoints = false)
    val broadcasts = ids.collect { case BroadcastBlockId(id, _) => id }.toSet
    compact(render(("heap" -> heap) ~ ("blocks" -> ids.size) ~ ("broadcasts" -> broadcasts.size)))
  }
}
