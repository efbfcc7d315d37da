package org.apache.spark.sql.binshift.retention

import java.io.FileNotFoundException
import java.util.concurrent.atomic.AtomicBoolean

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{FileStatus, FileSystem, Path}

import org.apache.spark.SparkException
import org.apache.spark.sql.execution.streaming.state.binshift.{BinshiftException, Trace}
import org.apache.spark.sql.execution.streaming.state.binshift.checkpoint.VersionFile
import org.apache.spark.util.ThreadUtils

/**
 * The state of epochs that are no longer in the logs of offsets and commits, because somebody has wound the query back.
 *
 * Such state has to go: once the query comes to the same version again, a snapshot of the lost epoch would be read in place of
 * the new state. Spark takes the newest snapshot that it finds, and in each run, stores make their snapshots at other versions.
 *
 * Relies on Spark: files of a version are in `<operator>/<partition>`, or in a directory of each store below that; metadata of an
 * operator, in format 2, is in `<operator>/_metadata/v2/<epoch>`.
 *
 * It lists each of these directories on the stream's thread, unless the last run has recorded how far it had got ([[RunEnd]]).
 *
 * @param stateRoot the checkpoint's directory of state
 */
private[binshift] final class LostVersions(stateRoot: Path, hadoopConf: Configuration) {
  import LostVersions._

  private val fs: FileSystem = stateRoot.getFileSystem(hadoopConf)

  /**
   * Does the same as `after`, but if the last run has recorded that there is no such state, it only looks at the first partition
   * of each operator. That partition has a file of each committed epoch, so this notices if somebody has put binshift's directory
   * back without the state that belongs to it.
   */
  def unexpectedAfter(version: Long, epoch: Long): Seq[LaterFile] = {
    val first = operators.map(o => new Path(o.getPath, "0"))
    if (inParallel(first)(ofVersionsAfter(version, _)).forall(_.isEmpty)) Nil else after(version, epoch)
  }

  /** The files of versions after `version`, and of the metadata of epochs after `epoch`. */
  def after(version: Long, epoch: Long): Seq[LaterFile] = {
    val partitions = operators.flatMap(o => list(o.getPath)).filter(f => isDir(f) && numberOf(f).isDefined)
    inParallel(partitions.map(_.getPath))(ofVersionsAfter(version, _)).flatten ++ metadataAfter(epoch)
  }

  /** The files of the metadata of epochs after `epoch`. */
  def metadataAfter(epoch: Long): Seq[LaterFile] =
    operators.flatMap(o => list(new Path(o.getPath, Metadata))).filter(numberOf(_).exists(_ > epoch)).map(LaterFile(_, None))

  def modifiedMs(file: Path): Long = fs.getFileStatus(file).getModificationTime

  /**
   * Deletes the files, except those that have changed since they were listed. Deletes nothing more once it has thrown.
   *
   * @param requireAllowed throws if nothing may be deleted any more; called before each delete
   */
  def delete(files: Seq[LaterFile], requireAllowed: () => Unit): Unit = {
    val isOver = new AtomicBoolean(false)
    try inParallel(files) { file =>
        requireAllowed()
        if (!isOver.get && isAsListed(file) && !delete(file) && fs.exists(file.path))
          throw BinshiftException("FILE_NOT_DELETED", "file" -> file.path).configuration(
            s"${file.path} could not be deleted; it belongs to an epoch that is no longer in the query's logs, so it must not be " +
              "read again; delete it, and start the query again")
      }
    catch { case e: SparkException if e.getCause.isInstanceOf[BinshiftException] => throw e.getCause }
    finally isOver.set(true)
  }

  private def delete(file: LaterFile): Boolean = {
    if (Trace.isOn && file.version.isDefined) Trace("deletes lost", stateRoot.getParent, "files" -> Seq(file.path.toUri.getPath))
    fs.delete(file.path, false)
  }

  private def isAsListed(file: LaterFile): Boolean =
    try LaterFile(fs.getFileStatus(file.path), file.version) == file
    catch { case _: FileNotFoundException => false }

  private def operators: Seq[FileStatus] = list(stateRoot).filter(isDir)

  private def ofVersionsAfter(version: Long, dir: Path): Seq[LaterFile] = {
    val (dirs, files) = list(dir).partition(isDir)
    val stores = dirs.map(_.getPath).filter(isStore)
    val later = for (file <- files; v <- versionOf(file.getPath) if v > version) yield LaterFile(file, Some(v))
    later ++ stores.flatMap(ofVersionsAfter(version, _))
  }

  private def list(dir: Path): Seq[FileStatus] = DirectoryTree.list(fs, dir)

  private def inParallel[P, T](of: Seq[P])(body: P => T): Seq[T] =
    if (of.isEmpty) Nil else ThreadUtils.parmap(of, "binshift-lost-versions", MaxThreads)(body)
}

/** @param version version of the state; `None` for metadata of an operator */
private[binshift] final case class LaterFile(path: Path, modifiedMs: Long, bytes: Long, version: Option[Long])

private[retention] object LaterFile {
  def apply(file: FileStatus, version: Option[Long]): LaterFile =
    LaterFile(file.getPath, file.getModificationTime, file.getLen, version)
}

private[retention] object LostVersions {
  private val MaxThreads = 64
  private val Metadata = "_metadata/v2"
  /** Directories next to the files of versions that aren't stores, but hold what these files refer to. */
  private val NoStores = Set("SSTs", "logs")

  /** True if a directory next to the files of versions belongs to a store of its own. */
  def isStore(dir: Path): Boolean = !NoStores(dir.getName) && !"._".contains(dir.getName.head)

  def versionOf(file: Path): Option[Long] = VersionFile.parse(file.getName).map(_.version)

  private def numberOf(file: FileStatus): Option[Long] = file.getPath.getName.toLongOption

  private def isDir(file: FileStatus): Boolean = file.isDirectory
}
