package org.apache.spark.sql.execution.streaming.state.binshift

import java.util.ConcurrentModificationException
import java.util.concurrent.atomic.AtomicInteger

import scala.annotation.tailrec

import org.apache.spark.{SparkContext, SparkEnv, SparkException}
import org.apache.spark.scheduler.{SparkListener, SparkListenerBlockUpdated}
import org.apache.spark.sql.execution.streaming.state.binshift.shipping.{ExecutorLoad, ShippingThreads}
import org.apache.spark.storage.BlockId

/** The blocks of shipments on this executor, and those that the driver knows. */
object TestBlocks {
  def shipments(): Int = ids("").size

  /**
   * Blocks of shipments that the driver believes to be somewhere. The driver goes through its books on a thread of
   * its own, so a block that is told of meanwhile fails the question; it is asked again.
   */
  @tailrec
  def known(): Int = {
    val master = SparkEnv.get.blockManager.master
    val count =
      try Some(master.getMatchingBlockIds(_.name.matches(named("")), askStorageEndpoints = false).size)
      catch { case e: SparkException if causes(e).exists(_.isInstanceOf[ConcurrentModificationException]) => None }
    count match {
      case Some(n) => n
      case None => known()
    }
  }

  /** The number of pieces that were sent and are not freed yet. */
  def chunks(): Int = ids(Chunk).size

  /** The bytes of those pieces. */
  def chunkBytes(): Long = ids(Chunk).flatMap(SparkEnv.get.blockManager.getStatus).map(s => s.diskSize + s.memSize).sum

  /** Begins to count the messages to the driver about blocks of shipments. */
  def beginToCountMessages(sc: SparkContext): Unit = {
    messages.set(0)
    sc.addSparkListener(counting)
  }

  /** The number of those messages. */
  def countedMessages(sc: SparkContext): Int = {
    sc.listenerBus.waitUntilEmpty(120000)
    sc.removeSparkListener(counting)
    messages.get
  }

  private val messages = new AtomicInteger()

  private val counting = new SparkListener {
    override def onBlockUpdated(update: SparkListenerBlockUpdated): Unit =
      if (update.blockUpdatedInfo.blockId.name.matches(named(""))) messages.incrementAndGet()
  }

  /** Removes all pieces that were sent and not fetched yet, as if a disk were lost; returns their number. */
  def loseChunks(): Int = {
    val chunks = ids(Chunk)
    chunks.foreach(SparkEnv.get.blockManager.removeBlock(_))
    chunks.size
  }

  def hasFreeCore(): Boolean = ExecutorLoad.hasFreeCore

  def stagedBytes(): Long = ShippingThreads.stagedBytes.get

  private val Chunk = "_c\\d+_\\d+"

  private def causes(e: Throwable): Iterator[Throwable] = Iterator.iterate(e)(_.getCause).takeWhile(_ != null)

  /** Blocks are found by the end of their names, since each kind of id has its own syntax. */
  private def ids(end: String): Seq[BlockId] = {
    SparkEnv.get.blockManager.getMatchingBlockIds(_.name.matches(named(end))).toSeq.distinct
  }

  private def named(end: String): String = s"broadcast_\\d+_o\\d+_.*$end"
}
