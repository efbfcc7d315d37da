package org.apache.spark.sql.execution.streaming.state.binshift

import org.json4s.{DefaultFormats, Formats}
import org.json4s.JsonDSL._

/**
 * The run that a query is in, and the first epoch of it: the content of `run.json`.
 *
 * Whoever takes epochs out of the logs of offsets and commits has them run again, maybe with other data or another
 * routing table. What earlier runs made of them is not to be read any more; the driver deletes it when a run
 * begins, and stores of an earlier run that are still open, with a snapshot to upload, find out here.
 */
private[sql] final case class CurrentRun(runId: String, firstEpoch: Long) {

  /** Whether this run makes `version` anew, which the run `maker` has made. */
  def disowns(version: Long, maker: String): Boolean = maker != runId && version > firstEpoch
}

private[sql] object CurrentRun {
  val File = "run.json"
  private val FormatVersion = 1

  def read(dir: ControlDir): Option[CurrentRun] = dir.read(File).map { json =>
    implicit val formats: Formats = DefaultFormats
    val format = (json \ "format").extract[Int]
    if (format != FormatVersion) {
      throw BinshiftException.configuration(
        s"$File has format $format; this binshift reads format $FormatVersion; use the binshift version that wrote it")
    }
    CurrentRun((json \ "run").extract[String], (json \ "firstEpoch").extract[Long])
  }

  def write(dir: ControlDir, run: CurrentRun): Unit = dir.write(
    File, ("format" -> FormatVersion) ~ ("run" -> run.runId) ~ ("firstEpoch" -> run.firstEpoch))
}
