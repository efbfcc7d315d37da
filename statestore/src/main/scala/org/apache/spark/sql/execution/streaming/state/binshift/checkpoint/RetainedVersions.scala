package org.apache.spark.sql.execution.streaming.state.binshift.checkpoint

import java.io.FileNotFoundException

import scala.collection.mutable

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{FileSystem, Path}

import org.apache.spark.sql.execution.streaming.state.binshift.routing.EpochRouting
import org.apache.spark.sql.execution.streaming.state.StateStoreId

/**
 * The versions of a partition that the recovery of other partitions reads: a partition that adopted
 * bins at epoch S needs its source's version S until it has a snapshot newer than S.
 *
 * Called by maintenance threads, one at a time for a partition.
 *
 * @param store the partition that gave bins away
 */
private[sql] final class RetainedVersions(store: StateStoreId, routing: EpochRouting, hadoopConf: Configuration) {
  /** Epochs whose adopters have been found to need this partition no more. */
  private val settled = mutable.Set.empty[Long]
  /** What the commit log has said of snapshots of adopters. */
  private val committed = mutable.Map.empty[(Int, SnapshotFile), Boolean]

  /** The oldest version up to `last` that another partition still needs. */
  def oldest(last: Long): Option[Long] = synchronized {
    val lent = routing.adoptersUpTo(last)
    settled.filterInPlace(lent.contains)
    val needs = new Needs(lent, last)
    val needed = lent.keySet.filter(epoch => !settled(epoch) && needs.isNeeded(store.partitionId, epoch))
    settled ++= lent.keySet -- needed
    committed.filterInPlace((file, _) => needed.exists(_ < file._2.version))
    needed.minOption
  }

  /**
   * An adopter needs its source's version S until it has a snapshot newer than S that any of its own
   * versions can be rebuilt from which may still be read: the retained ones, and those that it has lent
   * itself after S to adopters that still need them.
   */
  private final class Needs(lent: Map[Long, Map[Int, Set[Int]]], last: Long) {
    private val known = mutable.Map.empty[(Int, Long), Boolean]
    private val snapshots = mutable.Map.empty[Int, Option[Seq[SnapshotFile]]]

    def isNeeded(source: Int, epoch: Long): Boolean = known.getOrElse((source, epoch), {
      val needed = lent(epoch).get(source).exists(_.exists(adopterNeeds(_, epoch)))
      known((source, epoch)) = needed
      needed
    })

    /** A directory that is gone needs nothing: its partition was retired and cleaned up. */
    private def adopterNeeds(adopter: Int, epoch: Long): Boolean = {
      val lentOn = lent.keysIterator.filter(e => e > epoch && isNeeded(adopter, e)).minOption
      val newest = lentOn.fold(last)(math.min(_, last))
      snapshots.getOrElseUpdate(adopter, snapshotsOf(adopter)).exists { files =>
        // All of them are asked for while the commit log has their ids; it hardly has those that count any more.
        val after = files.filter(_.version > epoch).filter(isCommitted(adopter, _))
        !after.exists(_.version <= newest)
      }
    }
  }

  private def snapshotsOf(partition: Int): Option[Seq[SnapshotFile]] = {
    val dir = store.copy(partitionId = partition).storeCheckpointLocation()
    RetainedVersions.snapshots(dir.getFileSystem(hadoopConf), dir)
  }

  /**
   * Of two attempts of a task, both may upload a snapshot under checkpoint format 2, and only that of the committed one is
   * ever read. The ids of a version that Spark has purged from the commit log are not known: its snapshots do not count,
   * unless they were asked for before.
   */
  private def isCommitted(partition: Int, file: SnapshotFile): Boolean = file.id.forall { id =>
    committed.getOrElse((partition, file), {
      val known = routing.committedId(store.copy(partitionId = partition), file.version)
      if (committed.size >= RetainedVersions.MaxCommitted) committed.clear()
      if (known.isDefined) committed((partition, file)) = known.contains(id)
      known.contains(id)
    })
  }
}

/** @param id of the attempt that made it, under checkpoint format 2 */
private[sql] final case class SnapshotFile(version: Long, id: Option[String])

private[sql] object RetainedVersions {
  private val MaxCommitted = 1000
  private val Snapshot = raw"(\d+)(?:_(.*))?\.zip".r

  /** The snapshots in a store's directory; `None` if there is no such directory. */
  def snapshots(fs: FileSystem, dir: Path): Option[Seq[SnapshotFile]] = try {
    Some(fs.listStatus(dir).toSeq.map(_.getPath.getName).collect { case Snapshot(v, id) => SnapshotFile(v.toLong, Option(id)) })
  } catch {
    case _: FileNotFoundException => None
  }
}
