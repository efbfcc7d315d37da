package org.apache.spark.sql.execution.streaming.state.binshift.storage

import java.io.File

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path

import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.execution.streaming.state.binshift.{Faults, OrWarn, Trace}
import org.apache.spark.sql.execution.streaming.state.binshift.checkpoint.{SnapshotList, VersionFile}

/**
 * Deletes old versions of a store, and the files that only their snapshots refer to.
 *
 * Spark's own cleanup isn't used, because it makes a listing of its own and keeps the newest snapshot in that, judged by version
 * alone. That snapshot may belong to an attempt that wasn't committed, or be newer than the decision about which files are kept.
 *
 * Called by maintenance threads, one at a time for a store.
 */
private[binshift] trait OldVersions extends RocksDBFileManager with OrWarn {
  protected def directory: Path
  protected def hadoop: Configuration
  protected def scratch: File

  private var newestSeen = Option.empty[Long]
  private var oldestSeen = 1L

  /** Relies on Spark: called with the version of each snapshot that is loaded or made. */
  override def setMaxSeenVersion(version: Long): Unit = {
    newestSeen = (newestSeen ++ Seq(version)).maxOption
    super.setMaxSeenVersion(version)
  }

  /** Decides which files go if Spark retains `retain` versions; `None` if all stay. */
  protected def oldVersions(retain: Int): Option[OldVersions.Decision]

  override def deleteOldVersions(retain: Int, maxToDelete: Int, minToDelete: Long): Unit = if (!areFewOld(retain, minToDelete)) {
    for (old <- oldVersions(retain)) {
      // Spark bounds the work of one round in the same way.
      def oldest =
        old.listed.filter(file => file.isSnapshot && !old.isSpared(new Path(directory, file.name))).map(_.version).minOption
      val most = Option.when(maxToDelete >= 0)(oldest).flatten.map(_ + maxToDelete)
      deleteBefore((most ++ Seq(old.before)).min, old.listed, old.isSpared)
    }
    Faults.at("versions.deleted")
  }

  /** True if there are so few old versions that it isn't worth listing them. This is Spark's own rule. */
  private def areFewOld(retain: Int, wanted: Long): Boolean =
    wanted > 0 && newestSeen.exists(_ - oldestSeen + 1 - retain < wanted)

  /**
   * Deletes the listed files of versions before `bound`, except those that are spared, and nothing else.
   *
   * The files of a snapshot are deleted before the snapshot itself, which stays if one of them couldn't be deleted. So if a
   * cleanup is cut short, the next one finds the rest. A snapshot may lack files meanwhile, because nobody begins with a snapshot
   * before `bound`.
   */
  private def deleteBefore(bound: Long, listed: Seq[VersionFile], isSpared: Path => Boolean): Unit = {
    // The lists of snapshots are read before anything is deleted, so that nothing is if one that stays can't be read. It may have
    // files in common with those that go. If it isn't there, the next listing lacks it.
    val OldVersions.Parted(gone, kept, unused, used) =
      OldVersions.part(listed, bound, file => isSpared(new Path(directory, file.name)))(filesOf)
    if (Trace.isOn && gone.nonEmpty)
      Trace("deletes", directory, "before" -> bound, "files" -> pathsOf(gone), "kept" -> pathsOf(kept))
    val manager = CheckpointFileManager.create(directory, hadoop)
    def delete(file: Path): Boolean = orWarn(s"$file could not be deleted; a later cleanup tries again", false) {
      manager.delete(file)
      true
    }
    val (snapshots, others) = gone.partition(_.isSnapshot)
    if (snapshots.nonEmpty) {
      val there = SnapshotList.folders.map(new Path(directory, _)).filter(manager.exists).flatMap(manager.list(_))
      val all = unused ++ findOrphanFiles((unused ++ used).toSeq, there)
      val deleted = all.toSeq.map(name => delete(new Path(new Path(directory, SnapshotList.folderOf(name)), name)))
      if (deleted.forall(identity)) snapshots.foreach { snapshot =>
        delete(new Path(directory, snapshot.name))
        lists.remove((snapshot.version, snapshot.id))
      }
    }
    others.foreach(file => delete(new Path(directory, file.name)))
    oldestSeen = bound
    if (gone.nonEmpty) logInfo(s"deleted ${gone.size} files of versions before $bound in $directory")
  }

  private def pathsOf(files: Seq[VersionFile]): Seq[String] =
    files.filterNot(_.isChecksum).map(f => new Path(directory, f.name).toUri.getPath)

  private def lists = RocksDBFields.snapshotFiles(this)

  private def filesOf(snapshot: VersionFile): Seq[String] = {
    val key = (snapshot.version, snapshot.id)
    val files = Option(lists.get(key)).getOrElse {
      val zip = new Path(directory, snapshot.name)
      SnapshotList.read(zip.getFileSystem(hadoop), zip, scratch).immutableFiles
    }
    lists.put(key, files)
    files.map(_.dfsFileName)
  }
}

private[binshift] object OldVersions {
  /**
   * @param before   all versions before this one go
   * @param listed   the files that existed at the time of the decision
   * @param isSpared true for files that a savepoint keeps, which was asked after the decision
   */
  final case class Decision(before: Long, listed: Seq[VersionFile], isSpared: Path => Boolean)

  /**
   * @param gone   files of versions that go
   * @param kept   those that stay
   * @param unused files of which only snapshots consist that go; those of a snapshot that isn't whole are found as orphans later
   * @param used   those of which snapshots consist that stay; not asked for if no snapshot goes
   */
  final case class Parted(gone: Seq[VersionFile], kept: Seq[VersionFile], unused: Set[String], used: Set[String])

  /** Parts the listed files of a store if versions before `bound` go. Snapshots may have files in common. */
  def part(listed: Seq[VersionFile], bound: Long, isSpared: VersionFile => Boolean)(
      filesOf: VersionFile => Seq[String]): Parted = {
    val (gone, kept) = listed.partition(file => file.version < bound && !isSpared(file))
    val snapshots = gone.filter(_.isSnapshot)
    val used = if (snapshots.isEmpty) Set.empty[String] else kept.filter(_.isSnapshot).flatMap(filesOf).toSet
    Parted(gone, kept, snapshots.flatMap(one => SnapshotList.ifWhole(filesOf(one)).toSeq.flatten).toSet -- used, used)
  }
}
