package org.apache.spark.sql.execution.streaming.state.binshift.storage

import java.io.File

import scala.collection.Map
import scala.util.control.NonFatal

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path

import org.apache.spark.internal.Logging
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.execution.streaming.state.binshift.{BinshiftException, Faults, Trace}
import org.apache.spark.sql.execution.streaming.state.binshift.checkpoint.{SnapshotList, VersionFile}

/**
 * Snapshots that were still to be uploaded when their run ended are not, if the next run makes their version anew.
 *
 * Relies on Spark: all snapshots are uploaded by `saveCheckpointToDfs`; one for which it throws does not count as uploaded, and
 * maintenance goes on.
 *
 * Called by tasks and maintenance threads.
 */
private[binshift] trait OwnSnapshots extends RocksDBFileManager with Logging {
  protected def directory: Path
  protected def hadoop: Configuration
  protected def scratch: File

  /** Whether a later run of the query makes `version` anew; also of a snapshot that `isWritten`. */
  protected def isDisowned(version: Long, isWritten: Boolean): Boolean

  override def saveCheckpointToDfs(
      checkpointDir: File,
      version: Long,
      numKeys: Long,
      numInternalKeys: Long,
      fileMapping: Map[String, RocksDBSnapshotFile],
      columnFamilyMapping: Option[Map[String, ColumnFamilyInfo]],
      maxColumnFamilyId: Option[Short],
      checkpointUniqueId: Option[String],
      verifyNonEmptyFilesInZip: Boolean): Unit = {
    requireOwned(version, isWritten = false)
    if (Trace.isOn) Trace("uploads", directory, "version" -> version, "id" -> checkpointUniqueId)
    Faults.at("snapshot.upload")
    super.saveCheckpointToDfs(checkpointDir, version, numKeys, numInternalKeys, fileMapping, columnFamilyMapping,
      maxColumnFamilyId, checkpointUniqueId, verifyNonEmptyFilesInZip)
    if (Trace.isOn) Trace("uploaded", directory, "version" -> version, "id" -> checkpointUniqueId)
    // An upload takes its time, and the next run deletes what is there when it begins.
    try requireOwned(version, isWritten = true)
    catch {
      case e: BinshiftException =>
        val zip = new Path(directory, VersionFile.name(version, checkpointUniqueId, VersionFile.Snapshot))
        // The next run may have replaced it by its own.
        if (!isAnothers(zip, fileMapping)) {
          if (Trace.isOn) Trace("deletes", directory, "files" -> Seq(zip.toUri.getPath), "withdrawn" -> true)
          CheckpointFileManager.create(directory, hadoop).delete(zip)
        }
        throw e
    }
  }

  /**
   * Whether a snapshot consists of other files than `mine`, whose names are unique in the checkpoint. One that cannot be read
   * is not taken for another run's: the changelogs replace a snapshot, and nothing replaces what a wrong one has.
   */
  private def isAnothers(zip: Path, mine: Map[String, RocksDBSnapshotFile]): Boolean = {
    val list = new File(scratch, s"list-of-${zip.getName}")
    try {
      val listed = SnapshotList.read(zip.getFileSystem(hadoop), zip, list)
      listed.exists(_.immutableFiles.map(_.dfsFileName).toSet != mine.values.map(_.immutableFile.dfsFileName).toSet)
    } catch {
      case NonFatal(e) =>
        logWarning(s"whose snapshot $zip is cannot be read, and it is deleted", e)
        false
    } finally list.delete()
  }

  private def requireOwned(version: Long, isWritten: Boolean): Unit = {
    Faults.at("snapshot.check")
    if (isDisowned(version, isWritten)) {
      if (Trace.isOn) Trace("upload refused", directory, "version" -> version, "written" -> isWritten)
      throw BinshiftException("RUN_SUPERSEDED", "version" -> version).migration(
        s"the snapshot of version $version in $directory is of a run that has ended, and the query has gone on from an " +
          "earlier version since; it is not kept")
    }
  }
}
