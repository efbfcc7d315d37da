package org.apache.spark.sql.execution.streaming.state.binshift

import org.apache.spark.SparkEnv
import org.apache.spark.storage.{BlockId, BroadcastBlockId}

/** What shipping keeps on this executor, and what it knows of it. */
object TestBlocks {
  def shipments(): Int = ids(_ => true).size

  /** Takes away what was sent and not fetched yet, as a disk does that is lost; how many pieces that was. */
  def loseChunks(): Int = {
    val chunks = ids(_.matches(".*_c\\d+"))
    chunks.foreach(SparkEnv.get.blockManager.removeBlock(_))
    chunks.size
  }

  private def ids(isWanted: String => Boolean): Seq[BlockId] = SparkEnv.get.blockManager.getMatchingBlockIds {
    case BroadcastBlockId(_, field) => field.startsWith("_o") && isWanted(field)
    case _ => false
  }.toSeq

  def hasFreeCore(): Boolean = ExecutorLoad.hasFreeCore

  def stagedBytes(): Long = ShippingThreads.stagedBytes.get
}
