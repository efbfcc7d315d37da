package org.apache.spark.sql.execution.streaming.state.binshift

import org.json4s.{DefaultFormats, Formats}
import org.json4s.JsonDSL._

/**
 * The latest runs of a query, oldest first: the content of `runs.json`.
 *
 * Whoever takes epochs out of the logs of offsets and commits has them run again, maybe with other data or another
 * routing table. What earlier runs made of them is not to be read any more; the driver deletes it when a run
 * begins, and stores of an earlier run that are still open, with a snapshot to upload, find out here.
 */
private[sql] final case class RunHistory(runs: Seq[RunStart]) {

  def add(run: RunStart): RunHistory = RunHistory((runs :+ run).takeRight(RunHistory.MaxRuns))

  /** Whether a later run makes `version` anew, which the run `maker` has made. */
  def disowns(version: Long, maker: String): Boolean =
    runs.drop(runs.indexWhere(_.runId == maker) + 1).exists(_.goesOnFrom < version)
}

/** @param goesOnFrom the newest version that the run has in common with those before it */
private[sql] final case class RunStart(runId: String, goesOnFrom: Long)

private[sql] object RunHistory {
  val File = "runs.json"
  private val FormatVersion = 1
  /** Of a run that is not among so many, stores are hardly open any more; it then counts as older than all. */
  private val MaxRuns = 20

  def read(dir: ControlDir): RunHistory = RunHistory(dir.read(File).toSeq.flatMap { json =>
    implicit val formats: Formats = DefaultFormats
    val format = (json \ "format").extract[Int]
    if (format != FormatVersion) {
      throw BinshiftException.configuration(
        s"$File has format $format; this binshift reads format $FormatVersion; use the binshift version that wrote it")
    }
    (json \ "runs").children.map(r => RunStart((r \ "run").extract[String], (r \ "goesOnFrom").extract[Long]))
  })

  def write(dir: ControlDir, history: RunHistory): Unit = dir.write(File,
    ("format" -> FormatVersion) ~
      ("runs" -> history.runs.map(r => ("run" -> r.runId) ~ ("goesOnFrom" -> r.goesOnFrom))))
}
