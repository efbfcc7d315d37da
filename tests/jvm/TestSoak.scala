package org.apache.spark.sql.execution.streaming.state.binshift

import java.lang.management.ManagementFactory

import org.json4s.JsonDSL._
import org.json4s.jackson.JsonMethods.{compact, render}

import org.apache.spark.SparkEnv
import org.apache.spark.storage.BroadcastBlockId

/** Measurements of a soak in the driver. */
object TestSoak {
  private val Looks = 20
  private val LookMs = 250L

  /**
   * JSON: heap in use after what nobody holds was collected, bytes; blocks and broadcasts that the driver knows of.
   * Spark's cleaner drops them on a thread of its own, after a collection; so the fewest of some looks count.
   */
  def sample(): String = {
    System.gc()
    val looks = Seq.fill(Looks) {
      Thread.sleep(LookMs)
      SparkEnv.get.blockManager.master.getMatchingBlockIds(_ => true, askStorageEndpoints = false)
    }
    System.gc()
    val heap = ManagementFactory.getMemoryMXBean.getHeapMemoryUsage.getUsed
    val broadcasts = looks.map(_.collect { case BroadcastBlockId(id, _) => id }.toSet.size).min
    compact(render(("heap" -> heap) ~ ("blocks" -> looks.map(_.size).min) ~ ("broadcasts" -> broadcasts)))
  }
}
