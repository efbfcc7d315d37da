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
 * State of epochs that the logs of offsets and commits do not have any more, as somebody has wound the query back.
 *
 * A snapshot of such an epoch would be read as soon as the query has got to its version again, instead of what the
 * query made then: Spark takes the newest snapshot there is, and stores make theirs at other versions in each run.
 *
 * Relies on Spark: files of a version lie in `<operator>/<partition>`, or in a directory of each store below; metadata of
 * an operator, in format 2, is in `<operator>/_metadata/v2/<epoch>`.
 *
 * Costs a listing of each of these directories; called on the stream's thread, unless the run before has left word of how
 * far it had got ([[RunEnd]]).
 *
 * @param stateRoot the checkpoint's directory of state
 */
private[binshift] final class LostVersions(stateRoot: Path, hadoopConf: Configuration) {
  import LostVersions._

  private val fs: FileSystem = stateRoot.getFileSystem(hadoopConf)

  /**
   * The same, if the run before has left word that there are none: only the first partition of each operator is looked at
   * then, which has a file of each epoch that was committed. So a directory of binshift's that was put back without the
   * state that belongs to it is noticed.
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
   * Deletes the files, none any more once it has thrown, and none that is not as it was listed.
   *
   * @param requireAllowed throws if nothing is to be deleted any more; called before each delete
   */
  def delete(files: Seq[LaterFile], requireAllowed: () => Unit): Unit = {
    if (Trace.isOn)
      Trace("deletes lost", stateRoot.getParent, "files" -> files.filter(_.version.isDefined).map(_.path.toUri.getPath))
    val isOver = new AtomicBoolean(false)
    try inParallel(files) { file =>
        requireAllowed()
        if (!isOver.get && isAsListed(file) && !fs.delete(file.path, false) && fs.exists(file.path))
          throw BinshiftException("FILE_NOT_DELETED", "file" -> file.path).configuration(
            s"${file.path} could not be deleted; it is of an epoch that the query has forgotten, and must not be read again; " +
              "delete it, and start the query again")
      }
    catch { case e: SparkException if e.getCause.isInstanceOf[BinshiftException] => throw e.getCause }
    finally isOver.set(true)
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

/** @param version of state; `None` for metadata of an operator */
private[binshift] final case class LaterFile(path: Path, modifiedMs: Long, bytes: Long, version: Option[Long])

private[retention] object LaterFile {
  def apply(file: FileStatus, version: Option[Long]): LaterFile =
    LaterFile(file.getPath, file.getModificationTime, file.getLen, version)
}

private[retention] object LostVersions {
  private val MaxThreads = 64
  private val Metadata = "_metadata/v2"
  /** Directories next to the files of versions that hold what those files refer to. */
  private val NoStores = Set("SSTs", "logs")

  /** Whether a directory next to the files of versions is that of a store of its own. */
  def isStore(dir: Path): Boolean = !NoStores(dir.getName) && !"._".contains(dir.getName.head)

  def versionOf(file: Path): Option[Long] = VersionFile.parse(file.getName).map(_.version)

  private def numberOf(file: FileStatus): Option[Long] = file.getPath.getName.toLongOption

  private def isDir(file: FileStatus): Boolean = file.isDirectory
}
