package org.apache.spark.sql.execution.streaming.state.binshift.checkpoint

import java.util.concurrent.ConcurrentHashMap

import scala.jdk.CollectionConverters._

import org.apache.hadoop.fs.Path
import org.json4s.{DefaultFormats, Formats, JArray, JValue}

import org.apache.spark.internal.Logging

/**
 * The savepoints of a checkpoint. Each one names the files that make up the state of a committed epoch, and nobody may delete them
 * until it is dropped.
 *
 * Other processes make savepoints, and don't ask the driver. What makes that safe is an order. Whoever makes a savepoint first writes
 * a file that keeps everything, and then looks whether its epoch is still the newest committed one. Whoever deletes first decides what
 * to delete, and then looks for savepoints. So if the look of the one that deletes came too early to see the file, its decision was
 * made when that epoch was retained, and spares its files. Once the files of the epoch are known, they are all that is kept.
 *
 * Thread-safe; remembers the savepoints that it has read.
 */
private[sql] final class Savepoints(dir: ControlDir) extends Logging {
  import Savepoints._

  private val read = new ConcurrentHashMap[String, Savepoint]
  /**
   * What finished savepoints kept at the last look. One that was only begun doesn't count: it keeps everything, so a cleanup that spared
   * its files would find nothing to delete, and wouldn't look again.
   */
  @volatile private var last = KeptFiles(dir.checkpoint, Nil)

  /**
   * Has `decide` say what to delete, looks for savepoints afterwards, and returns the decision together with the files that stay in
   * spite of it. `None` if nothing may be deleted.
   *
   * @param decide gets the files that had to stay at the last look. It needn't count them, because they stay this time, too, even if
   *               their savepoint was dropped in between.
   */
  def sparing[T](decide: (Path => Boolean) => Option[T]): Option[(T, Path => Boolean)] = {
    val before = last
    for (decision <- decide(before.contains); now = kept() if !now.isEverything)
      yield (decision, file => before.contains(file) || now.contains(file))
  }

  /** The files that have to stay. Makes one request, and one for each savepoint that it hasn't read before. */
  def kept(): KeptFiles = {
    val files = there().map(_.files)
    last = KeptFiles(dir.checkpoint, files.filter(_.isDefined))
    KeptFiles(dir.checkpoint, files)
  }

  /** The names of all savepoints, also of those that are being made, or were never finished. */
  def names: Seq[String] = all().map(_._1.name)

  /** A savepoint of an epoch from `epoch` on. Reads no earlier ones. */
  def ofEpochSince(epoch: Long): Option[Savepoint] = there(epochOf(_) >= epoch).find(_.epoch >= epoch)

  private def isGivenUp(savepoint: Savepoint, changedMs: Long): Boolean =
    savepoint.isUnfinished && System.currentTimeMillis() - changedMs > UnfinishedMs

  private def there(isWanted: String => Boolean = _ => true): Seq[Savepoint] =
    all(isWanted).collect { case (savepoint, changedMs) if !isGivenUp(savepoint, changedMs) => savepoint }

  /** All savepoints whose ids are wanted, with the times at which their files changed. */
  private def all(isWanted: String => Boolean = _ => true): Seq[(Savepoint, Long)] = {
    val listed = dir.jsonFilesWithTimes(Dir).filter { case (id, _) => isWanted(id) }
    read.keySet.retainAll(listed.map(_._1).asJava)
    listed.map { case (id, changedMs) =>
      val found = Option(read.get(id)).orElse(dir.decoded(s"$Dir/$id.json")(parse))
      found.filter(!_.isUnfinished).foreach(read.put(id, _))
      if (found.exists(isGivenUp(_, changedMs)))
        logWarning(
          s"savepoint ${found.get.name} of ${dir.checkpoint} was begun and not finished; it keeps nothing any more; drop it")
      // A file that is gone since it was listed may have been replaced by one that isn't in the list.
      found.getOrElse(Savepoint(id, epochOf(id), None)) -> changedMs
    }
  }
}

private[sql] object Savepoints {
  val Dir = "savepoints"
  val FormatVersion = 1

  /** For how long a savepoint that is being made keeps everything. To make one takes at most half as long, even if clocks differ. */
  private val UnfinishedMs = 3600000L

  /** Ids begin with the epoch. */
  private def epochOf(id: String): Long = id.takeWhile(_ != '-').toLongOption.getOrElse(Long.MaxValue)

  private def parse(json: JValue): Savepoint = {
    implicit val formats: Formats = DefaultFormats
    ControlDir.requireFormat(json, Dir, FormatVersion)
    val files = Option(json \ "files").collect { case JArray(dirs) =>
      dirs.map(d => (d \ "directory").extract[String] -> (d \ "files").children.map(_(0).extract[String]).toSet).toMap
    }
    Savepoint((json \ "name").extract[String], (json \ "epoch").extract[Long], files)
  }
}

/**
 * @param epoch the committed epoch whose state it keeps
 * @param files the names of its files by their directories, which are relative to the checkpoint; `None` while it is being made
 */
private[sql] final case class Savepoint(name: String, epoch: Long, files: Option[Map[String, Set[String]]]) {
  def isUnfinished: Boolean = files.isEmpty
}

/** @param savepoints the files of each savepoint; `None` for one that is being made, which keeps everything */
private[sql] final case class KeptFiles(checkpoint: Path, savepoints: Seq[Option[Map[String, Set[String]]]]) {
  private val root = checkpoint.toUri.getPath.stripSuffix("/") + "/"

  /** True if nothing may be deleted. */
  def isEverything: Boolean = savepoints.exists(_.isEmpty)

  /** True if a file has to stay. A checksum stays with the file that it belongs to. */
  def contains(file: Path): Boolean = savepoints.nonEmpty && {
    val path = file.getParent.toUri.getPath
    require(path.startsWith(root), s"$file is not in $checkpoint")
    val dir = path.stripPrefix(root)
    val name = if (file.getName.endsWith(".crc")) file.getName.stripPrefix(".").stripSuffix(".crc") else file.getName
    savepoints.exists(_.forall(_.get(dir).exists(names => names(name) || names(file.getName))))
  }
}
