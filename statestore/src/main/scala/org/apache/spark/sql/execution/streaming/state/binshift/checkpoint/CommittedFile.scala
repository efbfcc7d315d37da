package org.apache.spark.sql.execution.streaming.state.binshift.checkpoint

import java.io.FileNotFoundException

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{FileStatus, Path}

import org.apache.spark.sql.execution.streaming.state.StateStoreId

/**
 * Identifies the attempt of a task that committed a version. Two attempts may write different rows, and a shipment must contain what
 * the checkpoint contains. Under checkpoint format 2, the checkpoint id identifies the attempt. Under format 1, in which the attempt
 * that renames last wins, the length and time of the version's file do.
 */
private[binshift] object CommittedFile {
  def attempt(store: StateStoreId, version: Long, checkpointId: Option[String], conf: Configuration): String =
    checkpointId.getOrElse {
      val dir = store.storeCheckpointLocation()
      val fs = dir.getFileSystem(conf)
      // A commit writes a changelog, a snapshot, or both; the changelog is never written again.
      Seq(VersionFile.Changelog, VersionFile.Snapshot).iterator.map(k => new Path(dir, VersionFile.name(version, None, k)))
        .flatMap(file => status(fs.getFileStatus(file))).map(s => s"${s.getLen}-${s.getModificationTime}")
        .nextOption().getOrElse("none")
    }

  private def status(read: => FileStatus): Option[FileStatus] =
    try Some(read)
    catch { case _: FileNotFoundException => None }
}
