package org.apache.spark.sql.binshift.retention

import java.util.concurrent.atomic.AtomicBoolean

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{FileStatus, FileSystem, Path}

import org.apache.spark.sql.binshift.routing.RoutingEntries
import org.apache.spark.sql.execution.streaming.state.binshift.OrWarn
import org.apache.spark.sql.execution.streaming.state.binshift.routing.RoutingEntry
import org.apache.spark.util.ThreadUtils

/**
 * Deletes routing entries, and the checkpoint ids that were kept with them, once no recovery can need them any more.
 *
 * A recovery needs the switches of all epochs after the snapshot with which it begins, and may begin with any snapshot in the checkpoint.
 * So the entry that was in force at the oldest version of any store is kept, and all entries after it, however many. If other
 * partitions need an old version of a store, that store still has the files (`RetainedVersions`). In addition, a number of entries is
 * kept for the history.
 *
 * The stream's thread only compares two numbers. The rest is done in the background, and only if there are clearly more entries than the
 * history wants. It lists the directories of stores, up to the first one that still needs the entries. That one is asked first the
 * next time.
 *
 * Relies on Spark: a store's files are those of [[LostVersions]]; the files of a version are deleted once Spark retains a newer snapshot
 * in their place.
 */
private[binshift] final class RoutingPruning(
    stateRoot: Path, hadoopConf: Configuration, entries: RoutingEntries, entriesToRetain: Int) extends OrWarn {
  import RoutingPruning._

  private val kept = math.max(entriesToRetain, MinKept)
  private val excess = math.max(1, kept / 8)
  private val isRunning = new AtomicBoolean(false)
  private lazy val fs: FileSystem = stateRoot.getFileSystem(hadoopConf)
  @volatile private var lastLookNs = Option.empty[Long]
  @volatile private var blocking = Option.empty[Path]

  /**
   * Called with each epoch, on the stream's thread.
   *
   * @param newest     the entry in force
   * @param operators  the binned ones
   * @param oldest     the oldest epoch that Spark retains
   * @param intervalMs how often stores' directories change, as maintenance deletes files
   */
  def prune(newest: RoutingEntry, operators: Seq[Long], oldest: Long, intervalMs: Long): Unit = {
    val isDue = entries.count >= kept + excess &&
      lastLookNs.forall(System.nanoTime() - _ >= intervalMs * 1000000L)
    if (isDue && isRunning.compareAndSet(false, true)) {
      lastLookNs = Some(System.nanoTime())
      Pruner.execute { () =>
        try orWarn(s"old routing entries of $stateRoot were not deleted; they stay for now")(prune(newest, operators, oldest))
        finally isRunning.set(false)
      }
    }
  }

  private def prune(newest: RoutingEntry, operators: Seq[Long], oldest: Long): Unit = {
    val epochs = entries.upTo(newest, Int.MaxValue).map(_.epoch).reverse
    // It pays to delete up to this entry, which then has to be the one in force at the oldest version.
    val wanted = epochs(math.min(excess, epochs.size - 1))
    val dirs = blocking.toSeq ++ operators.flatMap(op => list(new Path(stateRoot, op.toString)))
      .filter(f => f.isDirectory && f.getPath.getName.toIntOption.isDefined).map(_.getPath)
    var needed = oldest
    blocking = dirs.find { dir =>
      oldestBase(dir).foreach(base => needed = math.min(needed, base))
      needed <= wanted
    }
    if (dirs.nonEmpty && blocking.isEmpty) {
      val inForce = epochs.lastIndexWhere(_ < needed)
      // Entries that were never in force are deleted with those of their epochs.
      for (first <- epochs.lift(math.min(inForce, epochs.size - kept))) {
        val gone = entries.deleteBefore(first)
        if (gone > 0) logInfo(s"deleted $gone routing entries of $stateRoot, of epochs before $first")
      }
    }
  }

  /** The oldest version with which a recovery of a partition's stores may begin; `None` if they have no files. */
  private def oldestBase(partition: Path): Option[Long] = {
    val (dirs, files) = list(partition).partition(_.isDirectory)
    // The replay of a version begins with the switch of the version before it.
    val own = files.flatMap(f => LostVersions.versionOf(f.getPath)).minOption.map(_ - 1)
    (own ++ dirs.map(_.getPath).filter(LostVersions.isStore).flatMap(oldestBase)).minOption
  }

  private def list(dir: Path): Seq[FileStatus] = DirectoryTree.list(fs, dir)
}

private object RoutingPruning {
  /** How many entries are always kept: the one in force and the next one, with those before them. */
  private val MinKept = 4

  /** A thread for each query that has something to prune, so that a file system that doesn't answer only delays its own query. */
  private lazy val Pruner = ThreadUtils.newDaemonCachedThreadPool("binshift-pruner", 16)
}
