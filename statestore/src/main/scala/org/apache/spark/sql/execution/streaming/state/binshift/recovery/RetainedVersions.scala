package org.apache.spark.sql.execution.streaming.state.binshift.recovery

import scala.collection.mutable

import org.apache.hadoop.conf.Configuration

import org.apache.spark.internal.Logging
import org.apache.spark.sql.execution.streaming.state.{LineageItem, RocksDBConf, StateStoreId}
import org.apache.spark.sql.execution.streaming.state.binshift.checkpoint.{Lineage, SnapshotList, VersionFile}
import org.apache.spark.sql.execution.streaming.state.binshift.routing.{EpochRouting, Owners}

/**
 * Decides which files of a store are kept: those that a recovery of any retained version would read, according to its
 * [[RecoveryPlan]].
 *
 * It is enough to look at the oldest retained version, and to keep everything that is newer than what its recovery reads. For a
 * later version, each bin begins with the same snapshot or a newer one, and the plan has one changelog per version since. Two
 * things read files of this store for the oldest retained version: the store's own load, from its newest committed snapshot on;
 * and the recovery of bins that have left the store, until a later owner has a snapshot with them. Nobody else reads files that
 * are older than that snapshot.
 *
 * Called by maintenance threads, one at a time for a store, except for `committed`.
 *
 * @param partition the store's partition
 * @param files     reads the files and ids that this needs
 */
private[sql] final class RetainedVersions(partition: Int, files: RetainedVersions.Files) extends Logging {
  /** The bins that left at each epoch and whose recovery read files of this store at the last look. */
  private val departed = mutable.Map.empty[Long, Set[Int]]
  private val lineages = mutable.Map.empty[Int, Lineage]
  /** Snapshots that lacked files when they were looked at, by partition. They are not looked at again. */
  private val damaged = mutable.Set.empty[(Int, VersionFile)]
  /** The versions that were loaded since the last look, with their ids, so that no changelog has to be read for them. */
  private val loaded = mutable.TreeMap.empty[Long, Option[String]]

  /** Called by the task when the store is loaded with `version`, which shows that the version is committed. Makes no request. */
  def committed(version: Long, id: Option[String]): Unit = loaded.synchronized {
    loaded(version) = id
    if (loaded.size > RetainedVersions.MaxLoaded) loaded -= loaded.firstKey
  }

  /**
   * The version from which on files are kept; `None` if nothing may be deleted, or no version is known to be committed.
   *
   * @param listed the files in the store's directory
   * @param retain how many versions are retained up to the newest committed snapshot, as Spark counts them
   * @param asWell a version that is still read, such as by a copy that follows the store's changes, or whose snapshot has files that
   *               the store's next snapshot needs
   * @param isSpared true for files that aren't deleted whatever this decides, because a savepoint keeps them
   */
  def keptFrom(
      listed: Seq[VersionFile], retain: Int, asWell: Option[Long], isSpared: VersionFile => Boolean): Option[Long] =
    synchronized {
      for {
        last <- takeLoaded()
        own = new CommittedSnapshots(listed, lineageOf(partition))
        newest <- own.newest(last)
        oldest = (asWell ++ Seq(newest - retain + 1)).min
        first <- listed.filterNot(isSpared).map(_.version).minOption if own.newest(oldest).exists(first < _)
        _ = damaged.filterInPlace { case (_, snapshot) => snapshot.version >= first }
        base <- own.newestWhole(oldest)(v => isWhole(partition, snapshotOf(v))) if first < base
      } yield {
        // To read a changelog, one needs the snapshot before it, which says which column families the store had.
        val others = neededByOthers(listed, oldest, last, isSpared).map(needed => own.newest(needed).getOrElse(needed))
        val kept = (others ++ Seq(base)).min
        lineageOf(partition).foreach(_.forget(kept))
        kept
      }
    }

  /** The newest version that is known to be committed. Makes no request. */
  def newestCommitted: Option[Long] = loaded.synchronized(loaded.lastOption.map(_._1))

  /**
   * A missing changelog that the store itself would read when it is loaded at `version`. Makes no request for anything that
   * `keptFrom` has asked for already.
   *
   * @param version a version that was committed before the files were listed, so that its files are in the list
   */
  def lacking(listed: Seq[VersionFile], version: Long): Option[String] = synchronized {
    lazy val owners = files.owners(version)
    val own = new CommittedFiles(partition, listed, lineageOf(partition), files, owners, version)
    for {
      base <- own.newest(version)
      lost <- own.lacking(base + 1, version)
      // A partition without bins begins empty, whatever files it has.
      if owners.table(owners.at(version)).binsOf.lift(partition).exists(_.nonEmpty)
    } yield lost
  }

  /**
   * The oldest listed version that a recovery of `retained`, or of a later version, reads for bins that have left this store.
   *
   * Only switches since the oldest file that may be deleted matter, because a recovery reads files up to its switch. So the cost doesn't
   * depend on how long the query has run, or how old a savepoint is.
   *
   * @param last     the newest committed version
   * @param isSpared as in `keptFrom`
   */
  def neededByOthers(
      listed: Seq[VersionFile], retained: Long, last: Long, isSpared: VersionFile => Boolean): Option[Long] = synchronized {
    listed.filterNot(isSpared).map(_.version).minOption.filter(_ < retained).flatMap { first =>
      val owners = files.owners(last)
      val switches = owners.changes(first).filter(owners.epoch(_) < retained)
      departed.filterInPlace((epoch, _) => epoch >= first)
      for (i <- switches if !departed.contains(owners.epoch(i)))
        departed(owners.epoch(i)) = owners.table(i - 1).binsOf.lift(partition).toSeq.flatten
          .filter(owners.table(i).owner(_) != partition).toSet
      val snapshots = mutable.Map.empty[Int, CommittedFiles]
      def newest(of: Int, version: Long) = snapshots.getOrElseUpdate(of,
        new CommittedFiles(of, if (of == partition) listed else files.list(of), lineageOf(of), files, owners, last)).newestWhole(
        version)(isWhole(of, _))
      var oldest = Option.empty[Long]
      for {
        (epoch, bins) <- departed.toSeq.sortBy(_._1)
        (owner, of) <- bins.groupBy(owners.table(owners.at(retained)).owner)
        // Once the oldest file is needed, nothing can be deleted anyway, so no other store is listed.
        if !oldest.exists(_ <= first)
      } {
        val needed = RecoveryPlan.of(of.toSeq.sorted, owner, retained, owners, newest).oldest(partition, epoch)
        if (needed.isEmpty) departed(epoch) --= of
        oldest = (oldest ++ needed).minOption
      }
      lineages.filterInPlace((of, _) => of == partition || snapshots.contains(of))
      oldest
    }
  }

  /** The newest version that is known to be committed. Takes over the ids of all loaded versions. */
  private def takeLoaded(): Option[Long] = {
    val taken = loaded.synchronized(loaded.toSeq)
    for ((version, id) <- taken; ids <- lineageOf(partition)) id.foreach(ids.add(version, _))
    loaded.synchronized(taken.dropRight(1).foreach(loaded -= _._1))
    taken.lastOption.map(_._1)
  }

  private def snapshotOf(version: Long): VersionFile =
    VersionFile(version, lineageOf(partition).flatMap(_.id(version)), VersionFile.Snapshot, isChecksum = false)

  /** Makes a few requests if the snapshot of a partition was whole at the last look. */
  private def isWhole(of: Int, snapshot: VersionFile): Boolean = !damaged((of, snapshot)) && {
    val absent = files.absent(of, snapshot)
    if (absent.nonEmpty) {
      damaged += of -> snapshot
      logWarning(
        s"the snapshot ${snapshot.name} of partition $of lacks ${absent.head}, and maybe more; cleanups keep what is needed " +
          "without it; run `binshift fsck`")
    }
    absent.isEmpty
  }

  private def lineageOf(of: Int): Option[Lineage] =
    Option.when(files.hasIds)(lineages.getOrElseUpdate(of, new Lineage(files.lineage(of, _, _))))
}

private[sql] object RetainedVersions {
  /** How many loads are remembered between two looks of maintenance. The ids of earlier ones are read from changelogs. */
  private val MaxLoaded = 1000

  /** Answers questions about the stores of one operator and name in a checkpoint, by partition. */
  private[sql] trait Files {
    /** True if the names of files contain ids, as under checkpoint format 2. */
    def hasIds: Boolean
    def list(partition: Int): Seq[VersionFile]
    def owners(version: Long): Owners
    /** The id of a committed version, which is the newest one, or one at which bins moved. */
    def id(partition: Int, version: Long): String
    def lineage(partition: Int, version: Long, id: String): Seq[LineageItem]
    /** The missing files of a snapshot. */
    def absent(partition: Int, snapshot: VersionFile): Seq[String]
  }

  def of(
      store: StateStoreId, routing: EpochRouting, conf: RocksDBConf, hadoopConf: Configuration,
      ids: Boolean): RetainedVersions =
    new RetainedVersions(store.partitionId, filesOf(store, routing, conf, hadoopConf, ids))

  /** @param store any of the stores with this operator and name */
  def filesOf(
      store: StateStoreId, routing: EpochRouting, conf: RocksDBConf, hadoopConf: Configuration, ids: Boolean): Files =
    new Files {
      private def of(partition: Int) = store.copy(partitionId = partition)
      override def hasIds: Boolean = ids
      override def list(partition: Int): Seq[VersionFile] = VersionFile.list(of(partition), hadoopConf)
      override def owners(version: Long): Owners = routing.owners(version)
      override def id(partition: Int, version: Long): String = routing.checkpointIds(version).of(of(partition))
      override def lineage(partition: Int, version: Long, id: String): Seq[LineageItem] = {
        val opened = VersionFile.opened(of(partition), conf, hadoopConf)
        try Lineage.in(opened)(version, id)
        finally opened.close()
      }
      override def absent(partition: Int, snapshot: VersionFile): Seq[String] =
        SnapshotList.absent(of(partition).storeCheckpointLocation(), snapshot, hadoopConf)
    }
}
