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
private[binshift] final class LentVersions(store: StateStoreId, routing: EpochRouting, hadoopConf: Configuration) {
  /** Epochs whose adopters have been found to need this partition no more. */
  private val settled = mutable.Set.empty[Long]

  /** The oldest version up to `last` that another partition still needs. */
  def oldest(last: Long): Option[Long] = synchronized {
    val lent = routing.adoptersUpTo(last)
    settled.filterInPlace(lent.contains)
    val needed = lent.collect {
      case (epoch, bySource) if !settled(epoch) && bySource.get(store.partitionId).exists(_.exists(needs(_, epoch))) =>
        epoch
    }.toSet
    settled ++= lent.keys.filterNot(needed)
    needed.minOption
  }

  /** A directory that is gone needs nothing: its partition was retired and cleaned up. */
  private def needs(adopter: Int, epoch: Long): Boolean = {
    val dir = store.copy(partitionId = adopter).storeCheckpointLocation()
    LentVersions.snapshotVersions(dir.getFileSystem(hadoopConf), dir).exists(!_.exists(_ > epoch))
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
