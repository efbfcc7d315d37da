package org.apache.spark.sql.execution.streaming.state.binshift.shipping

import java.io.{File, IOException}

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path

/** Keeps the files of stores, as an executor does at the driver's request. */
object TestStandby {
  def begin(roots: Array[String], maxBytes: Long): Standby = new Standby(roots, maxBytes)

  final class Standby(roots: Array[String], maxBytes: Long) {
    private val conf = StandbyConf(intervalMs = 100, maxBytes = maxBytes, maxBytesPerSecond = 1L << 30, pieceBytes = 1 << 16)
    private val stores = roots.toSeq.zipWithIndex.map { case (root, p) =>
      val store = new StandbyStore(new Path(root), p, conf, new Configuration)
      StandbyStores.put(root, store)
      root -> store
    }

    /** Looks at the checkpoint once; returns whether that succeeded. */
    def follow(): Boolean = follow(3600000)

    /** Looks once, and fetches for at most `budgetMs`. */
    def follow(budgetMs: Long): Boolean = stores.map(_._2.follow(budgetMs)).forall(_ == 0)

    def reach(): Array[Long] = stores.map(_._2.progress.version).toArray

    /** True if a partition that moves would not wait for the files any longer. */
    def isSettled(): Boolean = stores.forall(_._2.progress.isSettled)

    def close(): Unit = stores.foreach { case (root, store) => StandbyStores.drop(root, store) }
  }

  def bytes(): Long = ShippingThreads.standbyBytes.get

  /** True if a file of `bytes` may be fetched to a disk with this free space. */
  def hasRoom(bytes: Long, free: Long, total: Long): Boolean =
    try {
      new FetchedFiles.Room(Long.MaxValue).require(bytes, disk(free, total))
      true
    } catch { case _: IOException => false }

  def isScarce(free: Long, total: Long): Boolean =
    new FetchedFiles.Room(Long.MaxValue).isScarce(disk(free, total))

  private def disk(free: Long, total: Long): File = new File("/") {
    override def getUsableSpace: Long = free
    override def getTotalSpace: Long = total
  }
}
