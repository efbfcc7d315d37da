package org.apache.spark.sql.execution.streaming.state.binshift.checkpoint

import java.io.{FileNotFoundException, IOException}
import java.nio.charset.StandardCharsets.UTF_8
import java.time.Instant

import scala.util.control.NonFatal

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{FileAlreadyExistsException, FileStatus, FSDataOutputStream, Path}
import org.json4s.{DefaultFormats, Formats, JValue}
import org.json4s.jackson.JsonMethods.{compact, parse, render}

import org.apache.spark.internal.Logging
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager.CancellableFSDataOutputStream
import org.apache.spark.sql.execution.streaming.state.binshift.BinshiftException

/**
 * binshift's own directory in a query's checkpoint.
 *
 * {{{
 *   <checkpoint>/binshift/layout.json       fixed facts of the checkpoint      (Layout)
 *                         runs/<n>          the latest runs of the query       (RunHistory)
 *                         ended.json        how far the last run had got       (RunEnd)
 *                         plans/<id>.json   the migration in progress, if any  (PlannedMigration)
 *                         routing/<epoch>-<checksum>   routing table from that epoch on   (RoutingLog)
 *                         ids/<epoch>       checkpoint ids from which bins moved (CheckpointIds)
 *                         served.json       signed requests that were served   (ServedRequests)
 *                         shipping.json     bins to be copied, while they are  (ShippingOrder)
 *                         statistics.json   what each bin held some time ago   (SavedStatistics)
 *                         changed_keys/<op>    that an operator's bins cannot move (ChangedKeys)
 *                         savepoints/<id>.json   files that must stay          (Savepoints)
 *                         requests/<id>.json, answers/<id>.json                (RemoteRequests)
 * }}}
 *
 * Every file is written in one atomic step, by the driver's stream thread or under the lock of the run. Executors and other processes
 * only read, with two exceptions: tasks write to `changed_keys`, and other processes leave requests.
 *
 * Relies on Spark: `CheckpointFileManager.createAtomic` makes a file visible as a whole or not at all.
 */
private[sql] final class ControlDir(val path: Path, val hadoopConf: Configuration) extends Logging {
  import ControlDir.{JsonEnding, MaxBytes}

  private lazy val fm = CheckpointFileManager.create(path, hadoopConf)

  /** The checkpoint that contains this directory. */
  def checkpoint: Path = path.getParent

  /** @param maxBytes a larger file is an error */
  def read(name: String, maxBytes: Long = MaxBytes): Option[JValue] = {
    val file = new Path(path, name)
    text(name, maxBytes).map { t =>
      if (t.length > maxBytes)
        throw BinshiftException("CHECKPOINT_DAMAGED", "file" -> file).configuration(
          s"$file is larger than $maxBytes bytes, so binshift has not written it; delete it, or restore it from a copy")
      ControlDir.understood(file)(parse(t))
    }
  }

  /** The text of a file, cut off one byte after `maxBytes`. */
  def text(name: String, maxBytes: Long = MaxBytes): Option[String] =
    try {
      val in = fm.open(new Path(path, name))
      try Some(new String(in.readNBytes(maxBytes.toInt + 1), UTF_8))
      finally in.close()
    } catch {
      case _: FileNotFoundException => None
    }

  /** Decodes a file, if it exists. A file that `decode` doesn't understand is reported as damaged. */
  def decoded[T](name: String)(decode: JValue => T): Option[T] =
    read(name).map(json => ControlDir.understood(new Path(path, name))(decode(json)))

  def write(name: String, json: JValue): Unit = write(name, ControlDir.textOf(json).getBytes(UTF_8))

  def write(name: String, bytes: Array[Byte]): Unit = write(name, bytes, ReplacedFile.create(fm, _))

  /**
   * Creates a file. Returns false if the file exists with another text. If several callers do this at the same time with different
   * texts, only one of them succeeds.
   *
   * On a local disk and on HDFS, the file is renamed into its place, as Spark's logs are. An object store has no rename. There, Spark's
   * managers check that the file doesn't exist and then write it, so if two drivers do this at the same time, both may succeed.
   * Therefore this method asks the store itself not to overwrite the file, if the store's client can do that. Some stores with an S3
   * API answer that they don't know such a request, and then the file is written as Spark writes its logs. Other stores ignore the
   * condition, so this method checks that the file doesn't exist before it makes the request, as Spark's managers do.
   *
   * @throws IOException if the request failed for another reason. It may still arrive, so nothing may be written without the condition.
   */
  def create(name: String, text: String): Boolean =
    if (exists(name)) this.text(name).contains(text)
    else if (!isConditional) createAtomically(name, text)
    else
      try {
        put(name, text)
        true
      } catch {
        // The file was there, or our own request has created it and only its answer was lost.
        case _: IOException if exists(name) => this.text(name).contains(text)
        case e: IOException if ControlDir.isUnknownRequest(e) =>
          logWarning(
            s"the object store of $path refused to create $name by a conditional request, which fails if the file exists; the file is " +
              "written as Spark writes its logs. If the store does not support such requests, set " +
              "fs.s3a.create.conditional.enabled to false", e)
          createAtomically(name, text)
      }

  private def createAtomically(name: String, text: String): Boolean =
    try {
      write(name, text.getBytes(UTF_8), fm.createAtomic(_, overwriteIfPossible = false))
      true
    } catch { case _: FileAlreadyExistsException => false }

  /** True if a file can be created by one request that fails if the file exists. Only the client is asked, not the store. */
  private lazy val isConditional: Boolean = path.getFileSystem(hadoopConf).hasPathCapability(path, ControlDir.ConditionalCreate)

  /** Relies on Hadoop: S3A makes a file visible as a whole, when it is closed. */
  private def put(name: String, text: String): Unit = {
    val bytes = text.getBytes(UTF_8)
    // The type of the builder refers to itself, which needs this import.
    import scala.language.existentials
    val builder = path.getFileSystem(hadoopConf).createFile(new Path(path, name))
    builder.overwrite(false)
    builder.opt(ControlDir.ConditionalCreate, true)
    val out: FSDataOutputStream = builder.build()
    try out.write(bytes)
    catch {
      case e: Throwable =>
        // If it were closed, the part that has been written so far would become visible.
        out.abort()
        throw e
    }
    out.close()
  }

  private def write(name: String, bytes: Array[Byte], open: Path => CancellableFSDataOutputStream): Unit = {
    val file = new Path(path, name)
    fm.mkdirs(file.getParent)
    val out = open(file)
    try {
      out.write(bytes)
      out.close()
    } catch {
      case e: Throwable =>
        out.cancel()
        throw e
    }
  }

  /** True if there is a checkpoint around this directory. Its offsets exist before any state does. */
  def isOfCheckpoint: Boolean = fm.exists(new Path(path.getParent, "offsets"))

  def exists(name: String): Boolean = fm.exists(new Path(path, name))

  /** True if the checkpoint is a fork or an export that is still being written, or was cut short (`savepoints/copying.py`). */
  def isUnfinishedCopy: Boolean = fm.exists(new Path(checkpoint, ControlDir.CopyMarker))

  /**
   * The names of the JSON files of `dir`, without their ending, in the order in which they were changed. Files whose names begin with
   * a dot or an underscore are still being written, or not ours.
   */
  def jsonFiles(dir: String): Seq[String] = jsonFilesWithTimes(dir).map(_._1)

  /** The same, with the times at which they were changed, in milliseconds since 1970. */
  def jsonFilesWithTimes(dir: String): Seq[(String, Long)] = list(dir).toSeq
    .filter(f => f.isFile && f.getPath.getName.endsWith(JsonEnding) && !"._".contains(f.getPath.getName.head))
    .map(f => (f.getPath.getName.stripSuffix(JsonEnding), f.getModificationTime)).sortBy(_.swap)

  def delete(name: String): Unit = fm.delete(new Path(path, name))

  /** The files of `dir` whose names are numbers, ascending. Temporary files have other names. */
  def numbers(dir: String): Seq[Long] = names(dir).flatMap(_.toLongOption).sorted

  /** The names of all files, including temporary ones. */
  def names(dir: String): Seq[String] = list(dir).map(_.getPath.getName).toSeq

  private def list(dir: String): Array[FileStatus] =
    try fm.list(new Path(path, dir))
    catch { case _: FileNotFoundException => Array.empty }
}

private[sql] object ControlDir {
  private val JsonEnding = ".json"
  private val CopyMarker = "binshift-copy.json"
  /** A capability in Hadoop since 3.4.2. S3A has it unless `fs.s3a.create.conditional.enabled` is false. */
  private val ConditionalCreate = "fs.option.create.conditional.overwrite"
  private val MaxBytes = Int.MaxValue - 8L
  /** Bad request, method not allowed, unsupported media type, not implemented: what stores answer to a request that they don't know. */
  private val UnknownRequest = Set(400, 405, 415, 501)

  /** Relies on Hadoop: an exception of S3A, whose classes aren't known here, has the method `statusCode` if the store has answered. */
  private def isUnknownRequest(e: IOException): Boolean =
    e.getClass.getMethods.find(m => m.getName == "statusCode" && m.getParameterCount == 0)
      .exists(m => UnknownRequest.contains(m.invoke(e).asInstanceOf[Int]))

  /** The text of a file with this content. */
  def textOf(json: JValue): String = compact(render(json))

  /** Runs `decode`, and reports any failure as damage of `file`. */
  def understood[T](file: Path)(decode: => T): T =
    try decode
    catch {
      case e: BinshiftException => throw e
      case NonFatal(e) => throw BinshiftException("CHECKPOINT_DAMAGED", "file" -> file).configuration(
          s"$file is damaged (${e.getMessage}); restore it from a copy of the checkpoint", e)
    }

  /**
   * Refuses a file that was written in another format than this version of binshift reads.
   *
   * @param advice what else can be done, as the rest of a sentence
   */
  def requireFormat(json: JValue, file: String, known: Int, advice: String = ""): Unit = {
    implicit val formats: Formats = DefaultFormats
    val format = (json \ "format").extract[Int]
    if (format != known) throw BinshiftException("UNKNOWN_FORMAT", "file" -> file, "format" -> format).configuration(
      s"$file has format $format; this binshift reads format $known; use the binshift version that wrote it$advice")
  }

  /** A time in the format of the files, in UTC, such as `2026-01-01T00:00:00.004Z`. */
  def timeOf(millis: Long): String = Instant.ofEpochMilli(millis).toString

  /** Converts a time that [[timeOf]] has formatted back to milliseconds since 1970. */
  def millisOf(time: String): Long = Instant.parse(time).toEpochMilli

  /** @param checkpointRoot the directory that holds `offsets`, `commits` and `state` */
  def of(checkpointRoot: Path, hadoopConf: Configuration): ControlDir =
    new ControlDir(new Path(checkpointRoot, "binshift"), hadoopConf)

  /** @param stateRoot the `state` directory that Spark hands to stores and stateful operators */
  def ofStateRoot(stateRoot: String, hadoopConf: Configuration): ControlDir =
    of(new Path(stateRoot).getParent, hadoopConf)
}
