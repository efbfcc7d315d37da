package org.apache.spark.sql.execution.streaming.state.binshift.checkpoint

import org.json4s.{DefaultFormats, Formats, JValue}

import org.apache.spark.sql.execution.streaming.state.binshift.{BinshiftConf, BinshiftException}
import org.json4s.JsonDSL._

/**
 * The latest runs of a query, oldest first: the content of `runs.json`.
 *
 * Whoever takes epochs out of the logs of offsets and commits has them run again, maybe with other data or another
 * routing table. What earlier runs made of them is not to be read any more; the driver deletes it when a run
 * begins, and stores of an earlier run that are still open, with a snapshot to upload, find out here.
 *
 * A driver that was started by mistake is here, too, though it came no further; and of two that begin at once, one may
 * replace what the other has written. So a run that is disowned by what is here still owns what it has logged (`ownsEpoch`).
 */
private[sql] final case class RunHistory(runs: Seq[RunStart]) {

  def add(run: RunStart): RunHistory = RunHistory((runs.filterNot(_.runId == run.runId) :+ run).takeRight(RunHistory.MaxRuns))

  /** That the run has deleted what it had to; the others stay, with those that have begun since. */
  def cleaned(runId: String): RunHistory =
    RunHistory(runs.map(run => if (run.runId == runId) run.copy(isCleaning = false) else run))

  /** Whether a later run makes `version` anew, which the run `maker` has made. */
  def disowns(version: Long, maker: String): Boolean =
    runs.drop(runs.indexWhere(_.runId == maker) + 1).exists(_.goesOnFrom < version)
}

/**
 * @param goesOnFrom the newest version that the run has in common with those before it
 * @param began      the first epoch of the run, and the routing entry in force at it. No other file names that entry if
 *                   the run ends with that epoch.
 * @param isCleaning whether files of later versions had still to be deleted
 * @param loggedAtMs when Spark logged the epoch that the run began with, as the log of offsets says. An epoch that was
 *                   taken out of the log, and is logged anew, has another time.
 */
private[sql] final case class RunStart(
    runId: String,
    goesOnFrom: Long,
    began: (Long, EntryName),
    isCleaning: Boolean = false,
    loggedAtMs: Option[Long] = None) {

  /** The first epoch of the run. */
  def epoch: Long = began._1

  /** Whether the run began with an epoch as it was logged then; false if that is not known. */
  def hasBegun(epoch: Long, loggedAtMs: Option[Long]): Boolean =
    this.epoch == epoch && loggedAtMs.isDefined && this.loggedAtMs == loggedAtMs
}

private[sql] object RunHistory {
  val File = "runs.json"
  /** The setting under which Spark logs the run with each of its epochs but the first. */
  val Key: String = BinshiftConf.Prefix + "run"
  private val FormatVersion = 1
  /** Of a run that is not among so many, stores are hardly open any more; it then counts as older than all. */
  private val MaxRuns = 20

  def read(dir: ControlDir): RunHistory = dir.decoded(File)(fromJson).getOrElse(RunHistory(Nil))

  private def fromJson(json: JValue): RunHistory = {
    implicit val formats: Formats = DefaultFormats
    val format = (json \ "format").extract[Int]
    if (format != FormatVersion) {
      throw BinshiftException("UNKNOWN_FORMAT", "file" -> File, "format" -> format).configuration(
        s"$File has format $format; this binshift reads format $FormatVersion; use the binshift version that wrote it")
    }
    RunHistory((json \ "runs").children.map { r =>
      val name = (r \ "routing").extract[String]
      val entry = EntryName.parse(name).getOrElse(
        throw BinshiftException("CHECKPOINT_DAMAGED", "file" -> File).configuration(
          s"$File is damaged: '$name' names no routing entry; restore it from a copy of the checkpoint"))
      RunStart((r \ "run").extract[String], (r \ "goes_on_from").extract[Long], ((r \ "began").extract[Long], entry),
        (r \ "cleaning").extractOpt[Boolean].getOrElse(false), (r \ "logged_at").extractOpt[String].map(ControlDir.millisOf))
    })
  }

  /**
   * Whether the log of offsets has `epoch` as the run has logged it; false for the first epoch of each run. If so, no
   * other run has taken its place: a run that goes on from an earlier version logs the epoch anew.
   *
   * In real-time mode an epoch is logged when it ends. Until it is, it is that of whoever has logged the one before. That mode has
   * ids in the names of files. Without them, a file of a run that has ended could be taken for one of the next run.
   *
   * @param hasIds whether names of files have ids
   */
  def ownsEpoch(dir: ControlDir, epoch: Long, runId: String, hasIds: Boolean): Boolean =
    LoggedConf.read(dir, epoch).orElse(if (hasIds) LoggedConf.read(dir, epoch - 1) else None)
      .exists(_.conf.get(Key).contains(runId))

  /**
   * The entry that was in force when `epoch` ran, as far as it is known: the log of offsets names it, but for the first epoch of each
   * run, whose entry is in the history.
   */
  def entryAt(dir: ControlDir, epoch: Long): Option[EntryName] = LoggedConf.read(dir, epoch).flatMap { logged =>
    logged.conf.get(EntryName.Key).flatMap(EntryName.parse).orElse(
      read(dir).runs.reverseIterator.find(_.hasBegun(epoch, logged.atMs)).map(_.began._2))
  }

  def write(dir: ControlDir, history: RunHistory): Unit = dir.write(File,
    ("format" -> FormatVersion) ~
      ("runs" -> history.runs.map(r =>
        ("run" -> r.runId) ~ ("goes_on_from" -> r.goesOnFrom) ~
          ("began" -> r.began._1) ~ ("routing" -> r.began._2.render) ~
          ("cleaning" -> Option.when(r.isCleaning)(true)) ~ ("logged_at" -> r.loggedAtMs.map(ControlDir.timeOf)))))
}
