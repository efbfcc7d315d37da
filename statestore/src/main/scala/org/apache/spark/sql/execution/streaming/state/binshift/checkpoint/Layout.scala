package org.apache.spark.sql.execution.streaming.state.binshift.checkpoint

import org.json4s.{DefaultFormats, Formats, JValue}

import org.apache.spark.sql.execution.streaming.state.binshift.{BinshiftConf, BinshiftException}
import org.apache.spark.sql.execution.streaming.state.binshift.keys.BinKeyCodec
import org.json4s.JsonDSL._
import org.json4s.jackson.JsonMethods

/**
 * The facts that are fixed for the whole life of a checkpoint.
 *
 * @param bins          number of bins, a multiple of the first batch's partitions
 * @param requestedBins the number the user asked for, which `bins` rounds up
 * @param sparkVersion  Spark version that started the checkpoint
 * @param operators     storage of each stateful operator, by operator id
 * @param takenOverAt   the first binned epoch of a checkpoint that Spark's own provider started. Versions up to this one are in
 *                      that provider's form.
 */
private[sql] final case class Layout(
    bins: Int,
    requestedBins: Int,
    sparkVersion: String,
    operators: Map[Long, OperatorLayout],
    takenOverAt: Option[Long] = None) {

  /** Operators whose state can't move. While there are any, nothing migrates. */
  def unsupported: Seq[OperatorLayout] =
    operators.toSeq.sortBy(_._1).map(_._2).filter(_.storage == Storage.Plain)
}

/** @param name the operator's name as Spark's progress and metadata report it */
private[sql] final case class OperatorLayout(name: String, storage: Storage)

/** How an operator's rows are placed and stored. */
private[sql] sealed abstract class Storage(val name: String)

private[sql] object Storage {
  /** Keys carry their bin (see [[BinKeyCodec]]) and follow the routing table. */
  case object Binned extends Storage("binned")
  /** Spark's own layout; all rows are in partition 0 whatever the number of partitions. */
  case object Single extends Storage("single")
  /** Spark's own layout, for an operator that cannot be migrated. */
  case object Plain extends Storage("plain")

  def apply(name: String): Storage = Seq(Binned, Single, Plain).find(_.name == name).getOrElse(
    throw BinshiftException("UNKNOWN_FORMAT", "file" -> "layout.json").configuration(
      s"storage '$name' of layout.json is unknown to this binshift; use the newer version that wrote the checkpoint"))
}

private[sql] object Layout {
  val File = "layout.json"
  val Hash = "murmur3-42"
  private val FormatVersion = 1

  def read(dir: ControlDir): Option[Layout] = dir.decoded(File)(fromJson)

  def write(dir: ControlDir, layout: Layout): Unit = dir.write(File, toJson(layout))

  /** The layout as text that [[parse]] reads. */
  def render(layout: Layout): String = ControlDir.textOf(toJson(layout))

  def parse(text: String): Layout = fromJson(JsonMethods.parse(text))

  /** Writes a layout unless one exists, and returns whether it did. */
  def create(dir: ControlDir, layout: Layout): Boolean = dir.create(File, ControlDir.textOf(toJson(layout)))

  /** Rounds `requested` up to the next multiple of `partitions`. */
  def roundedBins(requested: Int, partitions: Int): Int = {
    val bins = (requested.toLong + partitions - 1) / partitions * partitions
    if (bins > BinKeyCodec.MaxBins) {
      throw BinshiftException("INVALID_VALUE", "name" -> BinshiftConf.Bins, "value" -> requested).configuration(
        s"$requested bins rounded up to a multiple of $partitions partitions are $bins; " +
          s"at most ${BinKeyCodec.MaxBins} are possible; set ${BinshiftConf.Bins} lower")
    }
    bins.toInt
  }

  private def toJson(l: Layout): JValue =
    ("format" -> FormatVersion) ~ ("bins" -> l.bins) ~ ("requested_bins" -> l.requestedBins) ~
      ("hash" -> Hash) ~ ("spark_version" -> l.sparkVersion) ~ ("taken_over_at" -> l.takenOverAt) ~
      ("operators" -> l.operators.toSeq.sortBy(_._1).map { case (id, o) =>
        ("id" -> id) ~ ("name" -> o.name) ~ ("storage" -> o.storage.name)
      })

  private def fromJson(json: JValue): Layout = {
    implicit val formats: Formats = DefaultFormats
    val format = (json \ "format").extract[Int]
    val hash = (json \ "hash").extract[String]
    if (format != FormatVersion || hash != Hash) {
      throw BinshiftException("UNKNOWN_FORMAT", "file" -> File, "format" -> format).configuration(
        s"layout.json has format $format and hash '$hash'; this binshift reads format " +
          s"$FormatVersion and hash '$Hash'; use the binshift version that wrote the checkpoint")
    }
    val bins = (json \ "bins").extract[Int]
    require(bins >= 1 && bins <= BinKeyCodec.MaxBins, s"it has $bins bins")
    Layout(
      bins,
      (json \ "requested_bins").extract[Int],
      (json \ "spark_version").extract[String],
      (json \ "operators").children.map { o =>
        (o \ "id").extract[Long] ->
          OperatorLayout((o \ "name").extract[String], Storage((o \ "storage").extract[String]))
      }.toMap,
      (json \ "taken_over_at").extractOpt[Long])
  }
}
