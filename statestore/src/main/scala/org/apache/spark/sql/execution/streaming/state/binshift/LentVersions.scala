package org.apache.spark.sql.execution.streaming.state.binshift

import java.io.FileNotFoundException

import scala.collection.mutable

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{FileSystem, Path}

import org.apache.spark.sql.execution.streaming.state.StateStoreId

/**
 * The versions of a partition that the recovery of other partitions reads: a partition that adopted
 * bins at epoch S needs its source's version S until it has a snapshot newer than S.
 *
 * Called by maintenance threads, one at a time for a partition.
 *
 * @param store the partition that gave bins away
 */
private[sql] final class LentVersions(store: StateStoreId, routing: EpochRouting, hadoopConf: Configuration) {
  /** Epochs whose adopters have been found to need this partition no more. */
  private val settled = mutable.Set.empty[Long]

  /** The oldest version up to `last` that another partition still needs. */
  def oldest(last: Long): Option[Long] = synchronized {
    val lent = routing.adoptersUpTo(last)
    settled.filterInPlace(lent.contains)
    val needs = new Needs(lent, last)
    val needed = lent.keySet.filter(epoch => !settled(epoch) && needs.isNeeded(store.partitionId, epoch))
    settled ++= lent.keySet -- needed
    needed.minOption
  }

  /**
   * An adopter needs its source's version S until it has a snapshot newer than S that any of its own
   * versions can be rebuilt from which may still be read: the retained ones, and those that it has lent
   * itself after S to adopters that still need them.
   */
  private final class Needs(lent: Map[Long, Map[Int, Set[Int]]], last: Long) {
    private val known = mutable.Map.empty[(Int, Long), Boolean]
    private val snapshots = mutable.Map.empty[Int, Option[Seq[Long]]]

    def isNeeded(source: Int, epoch: Long): Boolean = known.getOrElse((source, epoch), {
      val needed = lent(epoch).get(source).exists(_.exists(adopterNeeds(_, epoch)))
      known((source, epoch)) = needed
      needed
    })

    /** A directory that is gone needs nothing: its partition was retired and cleaned up. */
    private def adopterNeeds(adopter: Int, epoch: Long): Boolean = {
      val lentOn = lent.keysIterator.filter(e => e > epoch && isNeeded(adopter, e)).minOption
      val newest = lentOn.fold(last)(math.min(_, last))
      snapshots.getOrElseUpdate(adopter, snapshotsOf(adopter)).exists(!_.exists(v => v > epoch && v <= newest))
    }
  }

  private def snapshotsOf(partition: Int): Option[Seq[Long]] = {
    val dir = store.copy(partitionId = partition).storeCheckpointLocation()
    LentVersions.snapshotVersions(dir.getFileSystem(hadoopConf), dir)
  }
}

private[sql] object LentVersions {
  private val Snapshot = raw"(\d+)(?:_.*)?\.zip".r

  /** Versions of which a store's directory has snapshots; `None` if there is no such directory. */
  def snapshotVersions(fs: FileSystem, dir: Path): Option[Seq[Long]] = try {
    Some(fs.listStatus(dir).toSeq.map(_.getPath.getName).collect { case Snapshot(v) => v.toLong })
  } catch {
    case _: FileNotFoundException => None
  }
}
