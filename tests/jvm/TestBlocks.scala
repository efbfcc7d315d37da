package org.apache.spark.sql.execution.streaming.state.binshift

import org.apache.spark.SparkEnv
import org.apache.spark.storage.BroadcastBlockId

/** What shipping keeps on this executor, and what it knows of it. */
object TestBlocks {
  def shipments(): Int = SparkEnv.get.blockManager.getMatchingBlockIds {
    case BroadcastBlockId(_, field) => field.startsWith("_o")
    case _ => false
  }.size

  def hasFreeCore(): Boolean = ExecutorLoad.hasFreeCore

  def stagedBytes(): Long = ShippingThreads.stagedBytes.get
}
