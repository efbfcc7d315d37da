package org.apache.spark.sql.execution.streaming.state.binshift.recovery

import java.io.FileNotFoundException

import scala.collection.mutable

import scala.util.control.NonFatal

import org.apache.hadoop.conf.Configuration

import org.apache.spark.internal.Logging
import org.apache.spark.sql.execution.streaming.state.{RocksDBFileManager, StateStoreId}
import org.apache.spark.sql.execution.streaming.state.binshift.checkpoint.{Lineage, VersionFile}
import org.apache.spark.sql.execution.streaming.state.binshift.routing.EpochRouting

/**
 * The versions of a partition that the recovery of other partitions reads: a partition that adopted
 * bins at epoch S needs its source's version S until it has a snapshot newer than S.
 *
 * Called by maintenance threads, one at a time for a partition.
 *
 * @param store   the partition that gave bins away
 * @param open opens the files of another partition
 */
private[sql] final class RetainedVersions(
    store: StateStoreId, routing: EpochRouting, hadoopConf: Configuration, open: StateStoreId => RocksDBFileManager)
  extends Logging {
  /** Epochs whose adopters may still need this partition, and the newest epoch that has been looked at. */
  private var pending = Set.empty[Long]
  private var seen = -1L
  /** What the commit log has said of snapshots of adopters. */
  private val committed = mutable.Map.empty[(Int, VersionFile), Boolean]

  /** The oldest version up to `last` that another partition still needs. */
  def oldest(last: Long): Option[Long] = oldestNeeded(last)((_, oldest) => oldest)

  /**
   * The oldest version whose files are still needed for that: of the snapshot from which it is made. Spark looks for that one by
   * version alone, and so would take one for it that was uploaded by an attempt which was not committed.
   */
  def oldestFile(last: Long): Option[Long] = oldestNeeded(last)(_.base(_))

  private def oldestNeeded(last: Long)(of: (Needs, Long) => Long): Option[Long] = synchronized {
    // What is gone cannot be kept. So a long history costs nothing: nobody has to know who adopted what in it.
    val isSettled = pending.isEmpty && seen >= 0 && routing.changes(seen + 1, last).isEmpty
    val own = if (isSettled) None else RetainedVersions.files(store, hadoopConf)
    own.flatMap(_.map(_.version).minOption).flatMap { oldest =>
      val needs = new Needs(routing.adopters(oldest, last), last, own)
      try {
        val (asked, later) =
          (pending.filter(_ >= oldest) ++ routing.changes(math.max(oldest, seen + 1), last)).partition(_ <= last)
        val needed = asked.filter(needs.isNeeded(store.partitionId, _))
        pending = needed ++ later
        seen = math.max(seen, last)
        committed.filterInPlace((file, _) => needed.exists(_ < file._2.version))
        needed.minOption.map(of(needs, _))
      } finally needs.close()
    }
  }

  /**
   * An adopter needs its source's version S until it has a snapshot newer than S that any of its own
   * versions can be rebuilt from which may still be read: the retained ones, and those from which it gave bins away
   * itself after S to adopters that still need them.
   */
  private final class Needs(adopters: Map[Long, Map[Int, Set[Int]]], last: Long, own: Option[Seq[VersionFile]])
    extends AutoCloseable {
    private val known = mutable.Map.empty[(Int, Long), Boolean]
    private val files = mutable.Map(store.partitionId -> own)
    private val lineages = mutable.Map.empty[Int, (RocksDBFileManager, Lineage)]

    def isNeeded(source: Int, epoch: Long): Boolean = known.getOrElse((source, epoch), {
        val needed = adopters(epoch).get(source).exists(_.exists(adopterNeeds(_, epoch)))
        known((source, epoch)) = needed
        needed
      })

    /** The snapshot from which the committed `version` of this partition is made; 0 if none is known to be. */
    def base(version: Long): Long = {
      val all = filesOf(store.partitionId).getOrElse(Nil)
      all.filter(f => f.isSnapshot && f.version <= version).sortBy(-_.version)
        .find(file => isCommitted(store.partitionId, all, file, isLogged(store.partitionId, file))).fold(0L)(_.version)
    }

    private def filesOf(partition: Int): Option[Seq[VersionFile]] =
      files.getOrElseUpdate(partition, RetainedVersions.files(of(partition), hadoopConf))

    /** @param logged what the commit log says of it */
    private def isCommitted(partition: Int, all: Seq[VersionFile], file: VersionFile, logged: Option[Boolean]): Boolean =
      logged.orElse(isOfAttempt(partition, file, idBefore(partition, all, file.version))).getOrElse(false)

    private def adopterNeeds(adopter: Int, epoch: Long): Boolean = {
      val passedOn = adopters.keysIterator.filter(e => e > epoch && isNeeded(adopter, e)).minOption
      val newest = passedOn.fold(last)(math.min(_, last))
      filesOf(adopter).fold(!isRetired(adopter, epoch)) { all =>
        // Also those that do not count yet: while the commit log has their ids, it takes one read to know.
        val after = all.filter(f => f.isSnapshot && f.version > epoch).map(file => file -> isLogged(adopter, file))
        !after.filter(_._1.version <= newest).sortBy(-_._1.version).exists { case (file, isLogged) =>
          isCommitted(adopter, all, file, isLogged)
        }
      }
    }

    /** Whether `partition` was retired after `epoch`: its directory may be gone then. One that is to begin has none yet. */
    private def isRetired(partition: Int, epoch: Long): Boolean =
      adopters.keysIterator.exists(e => e > epoch && routing.partitionsOf(e + 1).exists(_ <= partition))

    /**
     * The id of a version that Spark has purged from the commit log, by the changelogs that came after it: from the next
     * version whose ids were kept, since bins moved at it, or from the newest one that is committed.
     */
    private def idBefore(partition: Int, all: Seq[VersionFile], version: Long): Option[String] =
      try {
        val (_, lineage) = lineages.getOrElseUpdate(partition, {
            val opened = open(of(partition))
            (opened, new Lineage(opened))
          })
        val begins = adopters.keysIterator.filter(_ > version).minOption ++
          all.map(_.version).filter(_ > version).distinct.sorted.takeRight(RetainedVersions.MaxUncommitted + 1).reverse
        begins.iterator.takeWhile(_ => lineage.id(version).isEmpty).foreach { from =>
          if (!lineage.knows(from)) loggedId(partition, from).foreach(lineage.add(from, _))
        }
        lineage.id(version)
      } catch {
        case NonFatal(e) =>
          logWarning(s"the changelogs of ${of(partition)} do not say which file of version $version is committed; what it " +
              s"adopted from $store is kept for now", e)
          None
      }

    override def close(): Unit = lineages.values.foreach(_._1.close())
  }

  private def of(partition: Int): StateStoreId = store.copy(partitionId = partition)

  private def loggedId(partition: Int, version: Long): Option[String] = routing.committedId(of(partition), version)

  /**
   * Of two attempts of a task, both may upload a snapshot under checkpoint format 2, and only that of the committed one is
   * ever read. `None` if the commit log does not know any more.
   */
  private def isLogged(partition: Int, file: VersionFile): Option[Boolean] =
    if (file.id.isEmpty) Some(true)
    else committed.get((partition, file)).orElse(isOfAttempt(partition, file, loggedId(partition, file.version)))

  private def isOfAttempt(partition: Int, file: VersionFile, committedId: Option[String]): Option[Boolean] = {
    if (committed.size >= RetainedVersions.MaxCommitted) committed.clear()
    committedId.foreach(id => committed((partition, file)) = file.id.contains(id))
    committedId.map(file.id.contains(_))
  }
}

private[sql] object RetainedVersions {
  private val MaxCommitted = 1000
  /** Versions that a store may be ahead of the commit log. */
  private val MaxUncommitted = 2

  /** The files of versions in a store's directory; `None` if there is no such directory. */
  private def files(store: StateStoreId, hadoopConf: Configuration): Option[Seq[VersionFile]] =
    try {
      val dir = store.storeCheckpointLocation()
      Some(dir.getFileSystem(hadoopConf).listStatus(dir).toSeq.flatMap(f => VersionFile.parse(f.getPath.getName)))
    } catch {
      case _: FileNotFoundException => None
    }
}
