package org.apache.spark.sql.binshift.retention

import java.util.concurrent.atomic.AtomicBoolean

import scala.collection.mutable

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path

import org.apache.spark.sql.execution.streaming.state.{RocksDBConf, StateStoreId}
import org.apache.spark.sql.execution.streaming.state.binshift.{Faults, OrWarn, Trace}
import org.apache.spark.sql.execution.streaming.state.binshift.checkpoint.VersionFile
import org.apache.spark.sql.execution.streaming.state.binshift.recovery.RetainedVersions
import org.apache.spark.sql.execution.streaming.state.binshift.routing.EpochRouting
import org.apache.spark.util.ThreadUtils

/**
 * Deletes the state of partitions that no longer exist. They have no provider that would clean up. Their state goes once no epoch
 * that Spark retains had the partition, and no other partition needs it to recover bins that came from there.
 *
 * @param stateRoot   the checkpoint's directory of state
 * @param conf        the configuration of the query's stores
 * @param whenDeleted called in the background after something was deleted
 */
private[binshift] final class RetiredPartitions(
    stateRoot: String, hadoopConf: Configuration, conf: => RocksDBConf, whenDeleted: () => Unit)
  extends AutoCloseable with OrWarn {
  import RetiredPartitions._

  /**
   * Used by one thread at a time (`isRunning`). Kept, because they know the ids of snapshots that Spark has purged meanwhile, and
   * reading those again takes time.
   */
  private val retained = mutable.Map.empty[StateStoreId, RetainedVersions]
  private lazy val routing = EpochRouting.forReader(stateRoot, hadoopConf)
  private var deleting = Set.empty[Int]
  /** The number of partitions that exist, or are about to. */
  private var claimed = Int.MaxValue
  private val isRunning = new AtomicBoolean
  private var isClosed = false

  /** Declares that partitions below `n`, and no others, exist. Returns false while the state of one of them is being deleted. */
  def claim(n: Int): Boolean = synchronized {
    val isFree = !deleting.exists(_ < n)
    if (isFree) claimed = n
    isFree
  }

  /**
   * Looks for state that can be deleted, in the background, unless it is doing so already.
   *
   * @param stores names of the stores of each binned operator
   * @param oldest the oldest epoch that Spark retains
   * @param last   the newest committed version
   * @param hasIds whether names of files of versions contain ids
   */
  def clean(stores: Map[Long, Seq[String]], oldest: Long, last: Long, hasIds: Boolean): Unit =
    if (oldest > 0 && isRunning.compareAndSet(false, true)) Cleaner.execute { () =>
      try orWarn(s"the state of retired partitions in $stateRoot was not cleaned up") {
          val deleted = stores.toSeq.map { case (operator, names) => clean(operator, names, oldest, last, hasIds) }
          if (deleted.contains(true)) whenDeleted()
        }
      finally isRunning.set(false)
    }

  /** Begins no more deletes. */
  override def close(): Unit = synchronized { isClosed = true }

  /** Waits until nothing is being deleted, because the next run may have that partition again. */
  def awaitDeletes(): Unit = synchronized {
    while (deleting.nonEmpty) wait()
  }

  /** Returns whether anything was deleted. */
  private def clean(operator: Long, stores: Seq[String], oldest: Long, last: Long, hasIds: Boolean): Boolean = {
    var hasDeleted = false
    val dir = new Path(stateRoot, operator.toString)
    val fs = dir.getFileSystem(hadoopConf)
    val there = fs.listStatus(dir).toSeq.flatMap(_.getPath.getName.toIntOption).sorted.reverse
    if (there.exists(isRetired)) {
      val listed = routing.listed
      val used = routing.partitionsSince(oldest)
      def isStillRead(p: Int, isSpared: Path => Boolean): Boolean = stores.exists { name =>
        val store = StateStoreId(stateRoot, operator, p, name)
        retained.getOrElseUpdate(store, RetainedVersions.of(store, routing, conf, hadoopConf, hasIds))
          .neededByOthers(VersionFile.list(store, hadoopConf), oldest + 1, last,
            file => isSpared(new Path(store.storeCheckpointLocation(), file.name))).isDefined
      }
      retained.filterInPlace((store, _) => store.partitionId >= used)
      // Deleted one by one, the last first, so that a step that needs a partition again waits for one delete at most.
      for {
        p <- there if p >= used && isRetired(p)
        (_, isSpared) <- routing.savepoints.sparing(isSpared => Option.unless(isStillRead(p, isSpared))(())) if begin(p)
      } {
        try {
          // Another driver may open the partition meanwhile; its files aren't among these.
          val found = DirectoryTree.of(fs, new Path(dir, p.toString)).without(isSpared)
          Faults.at("retired.delete", p)
          if (!found.isEmpty && (routing.listed == listed || p >= routing.partitionsSince(oldest))) {
            hasDeleted = true
            if (Trace.isOn)
              Trace("deletes", new Path(dir, p.toString), "files" -> found.paths, "oldest" -> oldest, "committed" -> last)
            found.delete()
            logInfo(s"deleted the state of partition $p of operator $operator, which no epoch uses any more")
          }
        } finally end(p)
      }
    }
    hasDeleted
  }

  private def isRetired(p: Int): Boolean = synchronized(!isClosed && p >= claimed)

  private def begin(p: Int): Boolean = synchronized {
    val isFree = isRetired(p)
    if (isFree) deleting += p
    isFree
  }

  private def end(p: Int): Unit = synchronized {
    deleting -= p
    notifyAll()
  }
}

private object RetiredPartitions {
  /** Has a thread for each query that cleans up, so that a file system that doesn't answer only holds up its own query. */
  private lazy val Cleaner = ThreadUtils.newDaemonCachedThreadPool("binshift-cleaner", 16)
}
