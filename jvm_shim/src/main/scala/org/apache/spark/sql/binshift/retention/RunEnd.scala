package org.apache.spark.sql.binshift.retention

import org.json4s.{DefaultFormats, Formats}
import org.json4s.JsonDSL._

import org.apache.spark.sql.execution.streaming.state.binshift.BinshiftException
import org.apache.spark.sql.execution.streaming.state.binshift.checkpoint.{ControlDir, RunHistory}

/**
 * How far a run had got when it was stopped or failed; the content of `ended.json`. A run that was killed leaves none.
 *
 * It spares the next start the listing of all stores (see [[LostVersions]]). A file of its own, since a run may hear of its
 * end when the next one has begun: what it writes then names a run that is not the last one, and is passed over.
 *
 * @param epoch the last one that the run has planned: no store has state of a version after `epoch + 1`
 */
private[binshift] final case class RunEnd(runId: String, epoch: Long) {

  /**
   * Whether there is no state of epochs that the logs have lost, for a run that begins with `begins`. What was there when
   * the run that ended began, it has deleted then.
   *
   * @param runs    those that began before
   * @param isAgain whether `begins` was logged by a run before
   */
  def excludesLost(runs: RunHistory, begins: Long, isAgain: Boolean): Boolean =
    runs.runs.headOption.exists(_.runId == runId) && (begins == epoch + 1 || isAgain && begins == epoch)

  def write(dir: ControlDir): Unit = dir.write(RunEnd.File,
    ("format" -> RunEnd.FormatVersion) ~ ("run" -> runId) ~ ("epoch" -> epoch))
}

private[binshift] object RunEnd {
  private val File = "ended.json"
  private val FormatVersion = 1

  /** `None` also if it is damaged, or a newer binshift has written it: the start then lists all stores. */
  def read(dir: ControlDir): Option[RunEnd] =
    try dir.decoded(File) { json =>
        implicit val formats: Formats = DefaultFormats
        Option.when((json \ "format").extractOpt[Int].contains(FormatVersion))(
          RunEnd((json \ "run").extract[String], (json \ "epoch").extract[Long]))
      }.flatten
    catch {
      case _: BinshiftException => None
    }
}
