package org.apache.spark.sql.binshift.query

import org.json4s.{DefaultFormats, Formats}
import org.json4s.JsonDSL._

import org.apache.spark.sql.execution.streaming.state.binshift.checkpoint.ControlDir

/**
 * The signed requests that were served; the content of `served.json`, whose size is bounded.
 *
 * @param floorMs all requests that were issued up to this time count as served; milliseconds since 1970
 * @param ids     ids of served requests that were issued later, with the time
 */
private[binshift] final case class ServedRequests(floorMs: Long, ids: Map[String, Long]) {
  import ServedRequests._

  def covers(id: String, issuedAt: Long): Boolean = issuedAt <= floorMs || ids.contains(id)

  def add(id: String, issuedAt: Long): ServedRequests = {
    val all = (ids + (id -> issuedAt)).toSeq.sortBy(_._2)
    val (old, recent) = all.partition(_._2 < all.last._2 - WindowMs)
    val gone = old ++ recent.dropRight(MostIds)
    ServedRequests((floorMs +: gone.map(_._2)).max, recent.takeRight(MostIds).toMap)
  }
}

private[binshift] object ServedRequests {
  /** A request may be served after another one that was issued later, but by no more than this. */
  val WindowMs = 600000L
  private val MostIds = 1000
  private val File = "served.json"
  private val FormatVersion = 1

  def read(dir: ControlDir): ServedRequests = dir.decoded(File) { json =>
    implicit val formats: Formats = DefaultFormats
    ControlDir.requireFormat(json, File, FormatVersion)
    ServedRequests(ControlDir.millisOf((json \ "floor").extract[String]),
      (json \ "requests").children.map { r =>
        (r \ "id").extract[String] -> ControlDir.millisOf((r \ "issued_at").extract[String])
      }.toMap)
  }.getOrElse(ServedRequests(0, Map.empty))

  def write(dir: ControlDir, served: ServedRequests): Unit =
    dir.write(File,
      ("format" -> FormatVersion) ~ ("floor" -> ControlDir.timeOf(served.floorMs)) ~
        ("requests" -> served.ids.toSeq.sortBy(_._2).map { case (id, issuedAt) =>
          ("id" -> id) ~ ("issued_at" -> ControlDir.timeOf(issuedAt))
        }))
}
