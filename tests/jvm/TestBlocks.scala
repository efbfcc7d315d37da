package org.apache.spark.sql.execution.streaming.state.binshift

import org.apache.spark.SparkEnv
import org.apache.spark.storage.BlockId

/** What shipping keeps on this executor, and what it knows of it. */
object TestBlocks {
  def shipments(): Int = ids("").size

  /** Pieces that were sent and not freed yet. */
  def chunks(): Int = ids(Chunk).size

  /** Takes away what was sent and not fetched yet, as a disk does that is lost; how many pieces that was. */
  def loseChunks(): Int = {
    val chunks = ids(Chunk)
    chunks.foreach(SparkEnv.get.blockManager.removeBlock(_))
    chunks.size
  }

  def hasFreeCore(): Boolean = ExecutorLoad.hasFreeCore

  def stagedBytes(): Long = ShippingThreads.stagedBytes.get

  private val Chunk = "_c\\d+"

  /** By name, since each kind of block id takes its name apart in its own way. */
  private def ids(end: String): Seq[BlockId] = {
    val name = s"broadcast_\\d+_o\\d+_.*$end"
    SparkEnv.get.blockManager.getMatchingBlockIds(_.name.matches(name)).toSeq
  }
}
