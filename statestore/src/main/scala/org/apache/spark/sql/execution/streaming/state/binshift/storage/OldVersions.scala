package org.apache.spark.sql.execution.streaming.state.binshift.storage

import java.io.{File, FileNotFoundException}

import scala.util.control.NonFatal

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path

import org.apache.spark.internal.Logging
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.execution.streaming.state.binshift.Trace
import org.apache.spark.sql.execution.streaming.state.binshift.checkpoint.{SnapshotList, VersionFile}

/**
 * Deletes old versions of a store, and the files that only their snapshots consist of.
 *
 * Spark's own cleanup would take the newest snapshot of a listing that it makes itself for the one to begin with, by version alone. That
 * may be one of an attempt that was not committed, or one that came since it was decided what is kept.
 *
 * Called by maintenance threads, one at a time for a store.
 */
private[binshift] trait OldVersions extends RocksDBFileManager with Logging {
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

  /** Whether so few versions may be deleted that nothing is to be listed for them, as Spark has it. */
  protected final def areFewOld(retain: Int, wanted: Long): Boolean =
    wanted > 0 && newestSeen.exists(_ - oldestSeen + 1 - retain < wanted)

  /**
   * Deletes what was listed of versions before `bound`, and nothing else.
   *
   * The files of a snapshot go before the snapshot itself, which stays if one of them does: so what is left if this is cut short is found
   * by the next cleanup. Nobody begins with a snapshot before `bound`, so that it may lack files.
   */
  protected final def deleteBefore(bound: Long, listed: Seq[VersionFile]): Unit = {
    val (gone, kept) = listed.partition(_.version < bound)
    if (Trace.isOn && gone.nonEmpty)
      Trace("deletes", directory, "before" -> bound, "files" -> pathsOf(gone), "kept" -> pathsOf(kept))
    val manager = CheckpointFileManager.create(directory, hadoop)
    def delete(file: Path): Boolean =
      try {
        manager.delete(file)
        true
      } catch {
        case NonFatal(e) =>
          logWarning(s"$file was not deleted, and is tried again later", e)
          false
      }
    val (snapshots, others) = gone.partition(_.isSnapshot)
    // Before anything is deleted: a list that cannot be read keeps the rest.
    val still = if (snapshots.isEmpty) Set.empty[String] else kept.filter(_.isSnapshot).flatMap(filesOf).toSet
    val before = snapshots.flatMap(filesOf).toSet
    if (snapshots.nonEmpty) {
      val there = Folders.map(new Path(directory, _)).filter(manager.exists).flatMap(manager.list(_))
      val unused = (before -- still) ++ findOrphanFiles((before ++ still).toSeq, there)
      val deleted = unused.toSeq.map(name => delete(new Path(new Path(directory, folderOf(name)), name)))
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
    val known = Option(lists.get((snapshot.version, snapshot.id)))
    val zip = new Path(directory, snapshot.name)
    val list = new File(scratch, s"files-of-${snapshot.name}")
    val files = known.orElse {
      try SnapshotList.read(zip.getFileSystem(hadoop), zip, list).map(_.immutableFiles)
      catch { case _: FileNotFoundException => None }
      finally list.delete(): Unit
    }
    files.foreach(lists.put((snapshot.version, snapshot.id), _))
    files.toSeq.flatten.map(_.dfsFileName)
  }

  private def folderOf(name: String): String =
    if (RocksDBImmutableFile.isSstFile(name)) RocksDBImmutableFile.SST_FILES_DFS_SUBDIR
    else RocksDBImmutableFile.LOG_FILES_DFS_SUBDIR

  private def Folders: Seq[String] =
    Seq(RocksDBImmutableFile.SST_FILES_DFS_SUBDIR, RocksDBImmutableFile.LOG_FILES_DFS_SUBDIR)
}
