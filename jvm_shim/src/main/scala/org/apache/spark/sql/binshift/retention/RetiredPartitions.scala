package org.apache.spark.sql.binshift.retention

import scala.collection.mutable
import scala.util.control.NonFatal

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path

import org.apache.spark.internal.Logging
import org.apache.spark.sql.execution.streaming.state.{RocksDBConf, StateStoreId}
import org.apache.spark.sql.execution.streaming.state.binshift.checkpoint.VersionFile
import org.apache.spark.sql.execution.streaming.state.binshift.recovery.RetainedVersions
import org.apache.spark.sql.execution.streaming.state.binshift.routing.EpochRouting
import org.apache.spark.util.ThreadUtils

/**
 * Deletes the state of partitions that no longer exist, which no provider is left to clean up: once no
 * epoch that Spark retains had the partition, and no partition that took bins from it reads them from
 * there.
 *
 * @param stateRoot the checkpoint's directory of state
 * @param conf      that of the query's stores
 */
private[binshift] final class RetiredPartitions(stateRoot: String, hadoopConf: Configuration, conf: => RocksDBConf)
  extends Logging {
  import RetiredPartitions._

  /** Only the cleaner's thread; kept, as they know of snapshots whose ids Spark has purged since, which to read takes time. */
  private val retained = mutable.Map.empty[StateStoreId, RetainedVersions]
  private lazy val routing = EpochRouting.forReader(stateRoot, hadoopConf)
  private var deleting = Set.empty[Int]
  /** Partitions that exist, or are about to. */
  private var claimed = Int.MaxValue

  /** Has partitions below `n`, and only those, exist; false while the state of one is being deleted. */
  def claim(n: Int): Boolean = synchronized {
    val isFree = !deleting.exists(_ < n)
    if (isFree) claimed = n
    isFree
  }

  /**
   * Looks for what can be deleted, in the background.
   *
   * @param stores names of the stores of each binned operator
   * @param oldest the oldest epoch that Spark retains
   */
  def clean(stores: Map[Long, Seq[String]], oldest: Long): Unit = if (oldest > 0) {
    Cleaner.execute { () =>
      try stores.foreach { case (operator, names) => clean(operator, names, oldest) }
      catch {
        case NonFatal(e) => logWarning(s"the state of retired partitions in $stateRoot was not cleaned up", e)
      }
    }
  }

  private def clean(operator: Long, stores: Seq[String], oldest: Long): Unit = {
    val dir = new Path(stateRoot, operator.toString)
    val fs = dir.getFileSystem(hadoopConf)
    val there = fs.listStatus(dir).toSeq.flatMap(_.getPath.getName.toIntOption)
    if (there.exists(isRetired)) {
      val used = routing.partitionsSince(oldest)
      def isStillRead(p: Int): Boolean = stores.exists { name =>
        val store = StateStoreId(stateRoot, operator, p, name)
        retained.getOrElseUpdate(store,
          new RetainedVersions(
            store, routing, hadoopConf, VersionFile.opened(_, conf, hadoopConf))).oldest(oldest).isDefined
      }
      retained.filterInPlace((store, _) => store.partitionId >= used)
      there.filter(p => p >= used && !isStillRead(p) && begin(p)).foreach { p =>
        try {
          fs.delete(new Path(dir, p.toString), true)
          logInfo(s"deleted the state of partition $p of operator $operator, which no epoch uses any more")
        } finally end(p)
      }
    }
  }

  private def isRetired(p: Int): Boolean = synchronized(p >= claimed)

  private def begin(p: Int): Boolean = synchronized {
    val isFree = p >= claimed
    if (isFree) deleting += p
    isFree
  }

  private def end(p: Int): Unit = synchronized { deleting -= p }
}

private object RetiredPartitions {
  private lazy val Cleaner = ThreadUtils.newDaemonSingleThreadExecutor("binshift-cleaner")
}
