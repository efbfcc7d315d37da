package org.apache.spark.sql.execution.streaming.state.binshift.storage

import java.io.File
import java.util.concurrent.ConcurrentHashMap

import scala.collection.Map
import scala.jdk.CollectionConverters._

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path

import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.execution.streaming.state.binshift.{BinshiftException, Faults, OrWarn, Trace}
import org.apache.spark.sql.execution.streaming.state.binshift.checkpoint.{SnapshotList, VersionFile}

/**
 * Refuses to upload a snapshot if its run has ended and the next run makes the same version again.
 *
 * Relies on Spark: all snapshots are uploaded by `saveCheckpointToDfs`. If that throws, the snapshot doesn't count as uploaded,
 * and maintenance continues.
 *
 * Called by tasks and maintenance threads.
 */
private[binshift] trait OwnSnapshots extends RocksDBFileManager with OrWarn {
  import OwnSnapshots._

  protected def directory: Path
  protected def hadoop: Configuration
  protected def scratch: File
  /** The store's partition, or [[Faults.AnyPartition]]. */
  protected def partition: Int

  private val whole = ConcurrentHashMap.newKeySet[(Long, Option[String])]()

  /** True if a snapshot was uploaded as a whole, or loaded, since the last load of an older one. Makes no request. */
  def hasWhole(version: Long, id: Option[String]): Boolean = whole.contains((version, id))

  /** The newest of these. The store's next snapshot may have files in common with it, which it doesn't upload again. */
  def newestWhole: Option[Long] = whole.asScala.iterator.map(_._1).maxOption

  /** Runs `load`, which loads a snapshot. */
  protected def loadingSnapshot[T](version: Long, id: Option[String])(load: => T): T = {
    // If it can't be loaded, a later one is not relied on either.
    whole.removeIf(_._1 >= version)
    val loaded = load
    whole.add((version, id))
    loaded
  }

  /**
   * Returns whether a later run of the query makes `version` again. `isWritten` tells whether the snapshot is in the checkpoint
   * already.
   */
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
    Faults.at("snapshot.upload", partition)
    super.saveCheckpointToDfs(checkpointDir, version, numKeys, numInternalKeys, fileMapping, columnFamilyMapping,
      maxColumnFamilyId, checkpointUniqueId, verifyNonEmptyFilesInZip)
    if (Trace.isOn) Trace("uploaded", directory, "version" -> version, "id" -> checkpointUniqueId)
    // Checked again, because an upload takes some time, and the next run only deletes files that exist when it begins.
    try requireOwned(version, isWritten = true)
    catch {
      case e: BinshiftException =>
        val zip = new Path(directory, VersionFile.name(version, checkpointUniqueId, VersionFile.Snapshot))
        // The next run may have replaced it by its own snapshot.
        if (!isAnothers(zip, fileMapping)) {
          if (Trace.isOn) Trace("deletes", directory, "files" -> Seq(zip.toUri.getPath), "withdrawn" -> true)
          CheckpointFileManager.create(directory, hadoop).delete(zip)
        }
        throw e
    }
    whole.removeIf(_._1 < version - MaxVersions)
    whole.add((version, checkpointUniqueId))
  }

  /**
   * True if a snapshot consists of other files than `mine`; the names of files are unique in the checkpoint. A snapshot that
   * can't be read counts as ours and is deleted: the query can do without it, because there are changelogs, but not with wrong
   * content.
   */
  private def isAnothers(zip: Path, mine: Map[String, RocksDBSnapshotFile]): Boolean =
    orWarn(s"$zip cannot be read, so nobody knows which run wrote it; it is deleted", false) {
      val listed = SnapshotList.read(zip.getFileSystem(hadoop), zip, scratch)
      listed.immutableFiles.map(_.dfsFileName).toSet != mine.values.map(_.immutableFile.dfsFileName).toSet
    }

  private def requireOwned(version: Long, isWritten: Boolean): Unit = {
    Faults.at("snapshot.check", partition)
    if (isDisowned(version, isWritten)) {
      if (Trace.isOn) Trace("upload refused", directory, "version" -> version, "written" -> isWritten)
      throw BinshiftException("RUN_SUPERSEDED", "version" -> version).migration(
        s"the snapshot of version $version in $directory was made by a run that has ended, and the query has continued from " +
          "an earlier version since; the snapshot is not kept, and nothing needs to be done")
    }
  }
}

private object OwnSnapshots {
  /** For how many versions it is known that a snapshot is whole. */
  private val MaxVersions = 100000
}
