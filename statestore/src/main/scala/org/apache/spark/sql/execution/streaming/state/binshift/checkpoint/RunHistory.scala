package org.apache.spark.sql.execution.streaming.state.binshift.checkpoint

import org.json4s.{DefaultFormats, Formats, JBool, JValue}

import org.apache.spark.sql.execution.streaming.state.binshift.{BinshiftConf, BinshiftException}
import org.json4s.JsonDSL._

/**
 * The latest runs of a query, each of which has claimed its place: run n is the content of `runs/<n>`, which is written once.
 *
 * A run looks for the newest claim before it looks at anything else, and takes the number after it once all that can
 * refuse it has looked. If that number is taken, another run has begun meanwhile, and what this one has seen may have changed. A
 * run that is stopped before it claims cannot begin any more once another one has. One that is stopped after it has claimed may
 * wake up behind its successor, and finds the later claim before it deletes anything.
 *
 * Claims fence what is in `binshift/` and what is deleted. Which of two runs goes on is decided by Spark's logs alone, in which each
 * epoch is logged by one of them. A driver that was started by mistake is here, too, though it came no further.
 *
 * An immutable view of what was listed; claims are read when they are asked for. Any thread.
 *
 * @param numbers those of the claims, the newest first
 * @param claim   reads a claim; `None` if it is gone
 * @param old     runs from before there were claims, the newest first
 */
private[sql] final class RunHistory(numbers: Seq[Long], claim: Long => Option[RunStart], old: => Seq[RunStart]) {

  /** The number of the newest claim; 0 if there is none. */
  val newest: Long = numbers.headOption.getOrElse(0L)

  /** The newest first. */
  lazy val runs: LazyList[RunStart] = numbers.to(LazyList).flatMap(n => claim(n)) #::: LazyList.from(old)

  /** The runs that began after `runId`; all if it is not known any more. */
  def after(runId: String): Seq[RunStart] = runs.takeWhile(_.runId != runId)

  /** The newest run that began with `epoch` as it was logged at `loggedAtMs`. */
  def begunWith(epoch: Long, loggedAtMs: Option[Long]): Option[RunStart] = runs.find(_.hasBegun(epoch, loggedAtMs))
}

/**
 * @param began      the first epoch of the run, and the routing entry in force at it
 * @param loggedAtMs when Spark logged the epoch that the run began with, as the log of offsets says. An epoch that was
 *                   taken out of the log, and is logged anew, has another time.
 */
private[sql] final case class RunStart(runId: String, began: (Long, EntryName), loggedAtMs: Option[Long] = None) {

  /** The first epoch of the run. */
  def epoch: Long = began._1

  /** Whether the run began with an epoch as it was logged then; false if that is not known. */
  def hasBegun(epoch: Long, loggedAtMs: Option[Long]): Boolean =
    this.epoch == epoch && loggedAtMs.isDefined && this.loggedAtMs == loggedAtMs
}

private[sql] object RunHistory {
  val Dir = "runs"
  /** What runs were written to before they claimed their place; it counts as the runs before the first claim. */
  val OldFile = "runs.json"
  /** The setting under which Spark logs the run with each of its epochs but the first. */
  val Key: String = BinshiftConf.Prefix + "run"
  private val FormatVersion = 1
  /** One tells which entry is in force, and the others tell people what happened. */
  private val MaxRuns = 20

  val Empty: RunHistory = new RunHistory(Nil, _ => None, Nil)

  def read(dir: ControlDir): RunHistory =
    new RunHistory(dir.numbers(Dir).reverse.take(MaxRuns), readClaim(dir, _), readOld(dir).reverse)

  /** `None` if it is gone, or was withdrawn. */
  def readClaim(dir: ControlDir, number: Long): Option[RunStart] = {
    val file = s"$Dir/$number"
    dir.decoded(file) { json =>
      requireFormat(file, json)
      Option.unless((json \ "withdrawn") == JBool(true))(runOf(file, json))
    }.flatten
  }

  /**
   * Claims the place after the runs of `seen`.
   *
   * @return its number; `None` if another run has it
   */
  def claim(dir: ControlDir, seen: RunHistory, run: RunStart): Option[Long] = {
    val number = seen.newest + 1
    // Where a file system creates what is there already, what is there afterwards decides.
    val isWritten = dir.create(s"$Dir/$number", ControlDir.textOf(("format" -> FormatVersion) ~ toJson(run))) &&
      readClaim(dir, number).exists(_.runId == run.runId)
    val there = dir.numbers(Dir)
    // So many runs may have begun meanwhile that the claim with this number has been deleted.
    val isNewest = isWritten && there.last == number
    if (isNewest) there.filter(_ <= number - MaxRuns).foreach(old => dir.delete(s"$Dir/$old"))
    Option.when(isNewest)(number)
  }

  /**
   * Takes back the claim of a run that has begun nothing. The file stays: its number, if it were free again, could be claimed by a run
   * that has looked before others came and went.
   */
  def withdraw(dir: ControlDir, runId: String): Unit = for {
    (number, run) <- dir.numbers(Dir).reverseIterator.flatMap(n => readClaim(dir, n).map(n -> _)).find(_._2.runId == runId)
  } dir.write(s"$Dir/$number", ("format" -> FormatVersion) ~ toJson(run) ~ ("withdrawn" -> true))

  private def readOld(dir: ControlDir): Seq[RunStart] = dir.decoded(OldFile) { json =>
    requireFormat(OldFile, json)
    (json \ "runs").children.map(runOf(OldFile, _))
  }.getOrElse(Nil)

  private def requireFormat(file: String, json: JValue): Unit = {
    implicit val formats: Formats = DefaultFormats
    val format = (json \ "format").extract[Int]
    if (format != FormatVersion) {
      throw BinshiftException("UNKNOWN_FORMAT", "file" -> file, "format" -> format).configuration(
        s"$file has format $format; this binshift reads format $FormatVersion; use the binshift version that wrote it")
    }
  }

  private def runOf(file: String, r: JValue): RunStart = {
    implicit val formats: Formats = DefaultFormats
    val name = (r \ "routing").extract[String]
    val entry = EntryName.parse(name).getOrElse(
      throw BinshiftException("CHECKPOINT_DAMAGED", "file" -> file).configuration(
        s"$file is damaged: '$name' names no routing entry; restore it from a copy of the checkpoint"))
    RunStart((r \ "run").extract[String], ((r \ "began").extract[Long], entry),
      (r \ "logged_at").extractOpt[String].map(ControlDir.millisOf))
  }

  private def toJson(r: RunStart) =
    ("run" -> r.runId) ~ ("began" -> r.epoch) ~ ("routing" -> r.began._2.render) ~
      ("logged_at" -> r.loggedAtMs.map(ControlDir.timeOf))
}
