package org.apache.spark.sql.execution.streaming.state.binshift.recovery

import scala.collection.mutable

import org.apache.hadoop.conf.Configuration

import org.apache.spark.sql.execution.streaming.state.{LineageItem, RocksDBConf, StateStoreId}
import org.apache.spark.sql.execution.streaming.state.binshift.checkpoint.{Lineage, SnapshotList, VersionFile}
import org.apache.spark.sql.execution.streaming.state.binshift.routing.{EpochRouting, Owners}

/**
 * Which files of a store are kept: those that a recovery of any version reads that is retained, as [[RecoveryPlan]] has it.
 *
 * A plan of a later version begins each bin with the same snapshot or with a newer one, and reads one changelog per version since.
 * So the oldest retained version decides, and whatever is newer than that is kept. Of that version, two things read files of
 * the store: its own load, from its newest committed snapshot on; and the recovery of bins that have left it, as long as
 * no later owner has a snapshot with them. Nobody else reads files that are older than the snapshot.
 *
 * Called by maintenance threads, one at a time for a store, but for `committed`.
 *
 * @param partition of the store
 * @param files     what is read for it
 */
private[sql] final class RetainedVersions(partition: Int, files: RetainedVersions.Files) {
  /** By the epoch at which they left: bins whose recovery read files of this store when that was looked at last. */
  private val departed = mutable.Map.empty[Long, Set[Int]]
  private val lineages = mutable.Map.empty[Int, Lineage]
  /** The versions that were loaded since the last look, with their ids, so that no changelog has to be read for them. */
  private val loaded = mutable.TreeMap.empty[Long, Option[String]]

  /** The store is loaded with `version`, which so is committed. By the task; waits for no request. */
  def committed(version: Long, id: Option[String]): Unit = loaded.synchronized {
    loaded(version) = id
    if (loaded.size > RetainedVersions.MaxLoaded) loaded -= loaded.firstKey
  }

  /**
   * The version from which on files are kept; `None` if all are, or nothing is known to be committed.
   *
   * @param listed what is there
   * @param retain how many versions are, up to the newest committed snapshot, as Spark counts them
   * @param asWell a version that somebody else reads, such as one that follows the store's changes
   */
  def keptFrom(listed: Seq[VersionFile], retain: Int, asWell: Option[Long]): Option[Long] = synchronized {
    for {
      last <- takeLoaded()
      own = new CommittedSnapshots(listed, lineageOf(partition))
      newest <- own.newest(last)
      oldest = (asWell ++ Seq(newest - retain + 1)).min
      base <- own.newest(oldest)
      first <- listed.map(_.version).minOption if first < base
    } yield {
      val kept = (neededByOthers(listed, oldest, last) ++ Seq(base)).min
      lineageOf(partition).foreach(_.forget(kept))
      kept
    }
  }

  /** The newest version that is known to be committed. Waits for no request. */
  def newestCommitted: Option[Long] = loaded.synchronized(loaded.lastOption.map(_._1))

  /**
   * A changelog that is not there, though the store itself reads it if it is loaded as of `version`. Asks for nothing but what
   * `keptFrom` knows by then.
   *
   * @param version committed before the files were listed, so that they are among these
   */
  def lacking(listed: Seq[VersionFile], version: Long): Option[String] = synchronized {
    lazy val owners = files.owners(version)
    val own = new CommittedFiles(partition, listed, lineageOf(partition), files, owners, version)
    for {
      base <- own.newest(version)
      lost <- own.lacking(base + 1, version)
      // One without bins begins empty, whatever it has.
      if owners.table(owners.at(version)).binsOf.lift(partition).exists(_.nonEmpty)
    } yield lost
  }

  /**
   * The oldest version of which a recovery of `retained`, or of a later version, reads a file for bins that have left this store; of
   * those that are listed. What is gone cannot be kept. So a long history costs nothing.
   *
   * @param last the newest committed version
   */
  def neededByOthers(listed: Seq[VersionFile], retained: Long, last: Long): Option[Long] = synchronized {
    listed.map(_.version).minOption.filter(_ < retained).flatMap { first =>
      val owners = files.owners(last)
      val switches = owners.changes(first).filter(owners.epoch(_) < retained)
      departed.filterInPlace((epoch, _) => epoch >= first)
      for (i <- switches if !departed.contains(owners.epoch(i)))
        departed(owners.epoch(i)) = owners.table(i - 1).binsOf.lift(partition).toSeq.flatten
          .filter(owners.table(i).owner(_) != partition).toSet
      val snapshots = mutable.Map.empty[Int, CommittedFiles]
      def newest(of: Int, version: Long) = snapshots.getOrElseUpdate(of,
        new CommittedFiles(of, if (of == partition) listed else files.list(of), lineageOf(of), files, owners, last)).newest(
        version)
      var oldest = Option.empty[Long]
      for {
        (epoch, bins) <- departed.toSeq.sortBy(_._1)
        (owner, of) <- bins.groupBy(owners.table(owners.at(retained)).owner)
        // Nothing can be deleted then, whoever else needs it: no other store is listed.
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

  /** The newest version that is known to be committed. */
  private def takeLoaded(): Option[Long] = {
    val taken = loaded.synchronized(loaded.toSeq)
    for ((version, id) <- taken; ids <- lineageOf(partition)) id.foreach(ids.add(version, _))
    loaded.synchronized(taken.dropRight(1).foreach(loaded -= _._1))
    taken.lastOption.map(_._1)
  }

  private def lineageOf(of: Int): Option[Lineage] =
    Option.when(files.hasIds)(lineages.getOrElseUpdate(of, new Lineage(files.lineage(of, _, _))))
}

private[sql] object RetainedVersions {
  /** Loads between two looks of maintenance; of those before, changelogs tell the ids. */
  private val MaxLoaded = 1000

  /** What is asked about the stores of a checkpoint that have the same operator and name; by partition. */
  private[sql] trait Files {
    /** Whether names of files have ids, as under checkpoint format 2. */
    def hasIds: Boolean
    def list(partition: Int): Seq[VersionFile]
    def owners(version: Long): Owners
    /** The id of a version that is committed, and newest or one at which bins moved. */
    def id(partition: Int, version: Long): String
    def lineage(partition: Int, version: Long, id: String): Seq[LineageItem]
    /** The files that a snapshot consists of and that are not there. */
    def absent(partition: Int, snapshot: VersionFile): Seq[String]
  }

  def of(
      store: StateStoreId, routing: EpochRouting, conf: RocksDBConf, hadoopConf: Configuration,
      ids: Boolean): RetainedVersions =
    new RetainedVersions(store.partitionId, filesOf(store, routing, conf, hadoopConf, ids))

  /** @param store any of those with the operator and the name */
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
