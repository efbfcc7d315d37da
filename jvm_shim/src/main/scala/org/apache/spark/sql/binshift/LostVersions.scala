package org.apache.spark.sql.binshift

import scala.util.matching.Regex

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{FileStatus, FileSystem, Path}

import org.apache.spark.internal.Logging
import org.apache.spark.util.ThreadUtils

/**
 * State of epochs that the logs of offsets and commits do not have, or not any more.
 *
 * When a run begins with epoch e, a version after e is either of an epoch that did not get to its commit, and is about
 * to be made again; or of one that somebody took out of the logs, to wind the query back. A snapshot of the latter
 * would be read as soon as the query has got to its version again, instead of what the query made then: Spark takes
 * the newest snapshot there is, and stores make theirs at other versions in each run.
 *
 * Relies on Spark: files of a version are named `<version>.zip` and `<version>.changelog`, with `_<id>` behind the
 * version under checkpoint format 2, and lie in `<operator>/<partition>`, or in a directory of each store below;
 * the checksum of a file has its name and `.crc`.
 *
 * @param stateRoot the checkpoint's directory of state
 */
private[binshift] final class LostVersions(stateRoot: Path, hadoopConf: Configuration) extends Logging {
  import LostVersions._

  /** Deletes what is of versions after `version`. No task of the run may have begun. */
  def deleteAfter(version: Long): Unit = {
    val fs = stateRoot.getFileSystem(hadoopConf)
    val partitions = for {
      operator <- list(fs, stateRoot) if operator.isDirectory
      partition <- list(fs, operator.getPath) if partition.isDirectory && isNumber(partition)
    } yield partition.getPath
    val deleted = ThreadUtils.parmap(partitions, "binshift-lost-versions", MaxThreads)(deleteAfter(fs, _, version)).sum
    if (deleted > 0) logInfo(
      s"deleted $deleted state files in $stateRoot of versions after $version, with which the query now goes on")
  }

  private def deleteAfter(fs: FileSystem, dir: Path, version: Long): Int = {
    val (dirs, files) = list(fs, dir).partition(_.isDirectory)
    // The checksum goes first: a file without one is read, one with another's is refused.
    val lost = files.map(_.getPath).filter(f => versionOf(f).exists(_ > version)).sortBy(!_.getName.endsWith(".crc"))
    lost.foreach(fs.delete(_, false))
    val stores = dirs.map(_.getPath).filterNot(d => NoStores(d.getName) || "._".contains(d.getName.head))
    lost.size + stores.map(deleteAfter(fs, _, version)).sum
  }

  private def list(fs: FileSystem, dir: Path): Seq[FileStatus] =
    try fs.listStatus(dir).toSeq catch { case _: java.io.FileNotFoundException => Nil }
}

private object LostVersions {
  private val MaxThreads = 16
  private val VersionFile: Regex = raw"(\d+)(?:_[^.]+)?\.(?:zip|changelog)(?:\.crc)?".r
  /** Directories next to the files of versions that hold what those files refer to. */
  private val NoStores = Set("SSTs", "logs")

  private def versionOf(file: Path): Option[Long] = file.getName match {
    case VersionFile(version) => version.toLongOption
    case _ => None
  }

  private def isNumber(dir: FileStatus): Boolean = dir.getPath.getName.toIntOption.isDefined
}
