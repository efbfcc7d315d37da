package org.apache.spark.sql.binshift.retention

import org.json4s.{DefaultFormats, Formats}
import org.json4s.JsonDSL._

import org.apache.spark.sql.execution.streaming.state.binshift.BinshiftException
import org.apache.spark.sql.execution.streaming.state.binshift.checkpoint.{ControlDir, RunHistory}

/**
 * Says how far a run had got when it was stopped or failed; the content of `ended.json`. A run that was killed leaves none.
 *
 * With it, the next start doesn't have to list all stores (see [[LostVersions]]). It is a file of its own, because a run may learn of its
 * end only when the next one has begun. Then the file names a run that isn't the last one, and is ignored.
 *
 * @param epoch      the last epoch that the run has planned; no store has state of a version after `epoch + 1`
 * @param loggedAtMs when that epoch was logged; `None` if that is not known, as in real-time mode
 */
private[binshift] final case class RunEnd(runId: String, epoch: Long, loggedAtMs: Option[Long]) {

  /**
   * True if there is certainly no state of lost epochs when a run begins with `begins`. Any such state from before the run that
   * ended was deleted when that run began.
   *
   * @param runs     the runs that began before
   * @param beginsAt when `begins` was logged. If that was at another time than the run says, the epoch was taken out of the logs and
   *                 logged anew, perhaps by a start that was refused.
   */
  def excludesLost(runs: RunHistory, begins: Long, beginsAt: Option[Long]): Boolean =
    runs.runs.headOption.exists(_.runId == runId) &&
      (begins == epoch + 1 || begins == epoch && loggedAtMs.exists(beginsAt.contains))

  def write(dir: ControlDir): Unit = dir.write(RunEnd.File,
    ("format" -> RunEnd.FormatVersion) ~ ("run" -> runId) ~ ("epoch" -> epoch) ~
      ("logged_at" -> loggedAtMs.map(ControlDir.timeOf)))
}

private[binshift] object RunEnd {
  private val File = "ended.json"
  private val FormatVersion = 1

  /** `None` also if the file is damaged, or a newer binshift has written it. Then the start lists all stores. */
  def read(dir: ControlDir): Option[RunEnd] =
    try dir.decoded(File) { json =>
        implicit val formats: Formats = DefaultFormats
        Option.when((json \ "format").extractOpt[Int].contains(FormatVersion))(
          RunEnd((json \ "run").extract[String], (json \ "epoch").extract[Long],
            (json \ "logged_at").extractOpt[String].map(ControlDir.millisOf)))
      }.flatten
    catch {
      case _: BinshiftException => None
    }
}
