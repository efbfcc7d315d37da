package org.apache.spark.sql.execution.streaming.state.binshift.checkpoint

import org.json4s.{DefaultFormats, Formats, JBool, JValue}

import org.apache.spark.sql.execution.streaming.state.binshift.{BinshiftConf, BinshiftException}
import org.json4s.JsonDSL._

/**
 * The latest runs of a query. Each run claims its place by creating `runs/<n>`, which is written once and describes the run.
 *
 * A run looks for the newest claim before it looks at anything else. Once everything that can refuse the run has been checked, it
 * claims the next number. If that number is taken, another run has begun meanwhile, and what this run has seen may have changed. A
 * run that is stopped before it claims can't begin any more once another one has. A run that is stopped after it has claimed may
 * wake up after its successor has begun, but finds the later claim before it deletes anything.
 *
 * Claims protect what is in `binshift/`, and what would be deleted. Spark's logs alone decide which of two runs continues, because
 * only one of them can log each epoch. A driver that was started by mistake has a claim, too, even though it gets no further.
 *
 * An immutable view of what was listed; claims are read on demand. May be used by any thread.
 *
 * @param numbers numbers of the claims, newest first
 * @param claim   reads a claim; `None` if it is gone
 * @param old     runs from before there were claims, newest first
 */
private[sql] final class RunHistory(numbers: Seq[Long], claim: Long => Option[RunStart], old: => Seq[RunStart]) {

  /** The number of the newest claim; 0 if there is none. */
  val newest: Long = numbers.headOption.getOrElse(0L)

  /** The runs, newest first. */
  lazy val runs: LazyList[RunStart] = numbers.to(LazyList).flatMap(n => claim(n)) #::: LazyList.from(old)

  /** The runs that began after `runId`; all runs if `runId` is no longer known. */
  def after(runId: String): Seq[RunStart] = runs.takeWhile(_.runId != runId)

  /** The newest run that began with `epoch` as it was logged at `loggedAtMs`. */
  def begunWith(epoch: Long, loggedAtMs: Option[Long]): Option[RunStart] = runs.find(_.hasBegun(epoch, loggedAtMs))
}

/**
 * @param began      the first epoch of the run, and the routing entry in force at it
 * @param loggedAtMs when Spark logged the epoch that the run began with, according to the log of offsets. An epoch that was taken
 *                   out of the log and logged again has another time.
 * @param retained   how many epochs the run retains, for whoever wants to keep one of them; older versions didn't say it
 */
private[sql] final case class RunStart(
    runId: String, began: (Long, EntryName), loggedAtMs: Option[Long] = None, retained: Option[Int] = None) {

  /** The first epoch of the run. */
  def epoch: Long = began._1

  /** True if the run began with the epoch that was logged at this time; false if that isn't known. */
  def hasBegun(epoch: Long, loggedAtMs: Option[Long]): Boolean =
    this.epoch == epoch && loggedAtMs.isDefined && this.loggedAtMs == loggedAtMs
}

private[sql] object RunHistory {
  val Dir = "runs"
  /** The file in which older versions noted runs. Its runs count as those before the first claim. */
  val OldFile = "runs.json"
  /** The setting under which Spark logs the run, with each of its epochs except the first. */
  val Key: String = BinshiftConf.Prefix + "run"
  private val FormatVersion = 1
  /** How many claims are kept. The newest may be needed to find the entry in force; the others tell people what happened. */
  private val MaxRuns = 20

  val Empty: RunHistory = new RunHistory(Nil, _ => None, Nil)

  def read(dir: ControlDir): RunHistory =
    new RunHistory(dir.numbers(Dir).reverse.take(MaxRuns), readClaim(dir, _), readOld(dir).reverse)

  /** Reads a claim; `None` if it is gone, or was withdrawn. */
  def readClaim(dir: ControlDir, number: Long): Option[RunStart] = {
    val file = s"$Dir/$number"
    dir.decoded(file) { json =>
      ControlDir.requireFormat(json, file, FormatVersion)
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
    // Some file systems let two callers create the same file. Then the content that is there afterwards decides.
    val isWritten = dir.create(s"$Dir/$number", ControlDir.textOf(("format" -> FormatVersion) ~ toJson(run))) &&
      readClaim(dir, number).exists(_.runId == run.runId)
    val there = dir.numbers(Dir)
    // So many runs may have begun meanwhile that an earlier claim with this number was deleted.
    val isNewest = isWritten && there.last == number
    if (isNewest) there.filter(_ <= number - MaxRuns).foreach(old => dir.delete(s"$Dir/$old"))
    Option.when(isNewest)(number)
  }

  /**
   * Withdraws the claim of a run that has begun nothing. The file is kept. If its number became free, it could be claimed by a run that
   * looked before other runs came and went.
   */
  def withdraw(dir: ControlDir, runId: String): Unit = for {
    (number, run) <- dir.numbers(Dir).reverseIterator.flatMap(n => readClaim(dir, n).map(n -> _)).find(_._2.runId == runId)
  } dir.write(s"$Dir/$number", ("format" -> FormatVersion) ~ toJson(run) ~ ("withdrawn" -> true))

  private def readOld(dir: ControlDir): Seq[RunStart] = dir.decoded(OldFile) { json =>
    ControlDir.requireFormat(json, OldFile, FormatVersion)
    (json \ "runs").children.map(runOf(OldFile, _))
  }.getOrElse(Nil)

  private def runOf(file: String, r: JValue): RunStart = {
    implicit val formats: Formats = DefaultFormats
    val name = (r \ "routing").extract[String]
    val entry = EntryName.parse(name).getOrElse(
      throw BinshiftException("CHECKPOINT_DAMAGED", "file" -> file).configuration(
        s"$file is damaged: '$name' names no routing entry; restore it from a copy of the checkpoint"))
    RunStart((r \ "run").extract[String], ((r \ "began").extract[Long], entry),
      (r \ "logged_at").extractOpt[String].map(ControlDir.millisOf), (r \ "retained").extractOpt[Int])
  }

  private def toJson(r: RunStart) =
    ("run" -> r.runId) ~ ("began" -> r.epoch) ~ ("routing" -> r.began._2.render) ~
      ("logged_at" -> r.loggedAtMs.map(ControlDir.timeOf)) ~ ("retained" -> r.retained)
}
