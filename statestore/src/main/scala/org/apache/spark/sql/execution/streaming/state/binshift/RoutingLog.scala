package org.apache.spark.sql.execution.streaming.state.binshift

import scala.collection.immutable.ArraySeq

import org.json4s.{DefaultFormats, Formats, JNothing, JValue}
import org.json4s.JsonDSL._

/**
 * A routing table and the epoch from which on it is in force.
 *
 * @param step        the step of a migration that led to the table; `None` for the first table
 * @param writtenAtMs wall-clock time, milliseconds since 1970
 */
private[sql] final case class RoutingEntry(
    epoch: Long, table: RoutingTable, step: Option[StepRef], writtenAtMs: Long)

/**
 * @param index     position of the step in its plan, from 0
 * @param isOpening whether the table opens partitions for the step after this one, and no bin moves
 */
private[sql] final case class StepRef(
    migration: String, index: Int, steps: Int, strategy: String, moves: Int, isOpening: Boolean = false)

/**
 * The durable sequence of routing tables: one entry per epoch at which the table changes. The newest
 * entry at or before an epoch is in force.
 *
 * An entry is written before the offsets of its epoch are logged, and is void if those offsets are
 * then logged with another number of partitions; only the driver can tell, and deletes it before the
 * epoch runs. Hence executors, which only ever ask for epochs that run, see valid entries only.
 */
private[sql] final class RoutingLog(dir: ControlDir) {
  import RoutingLog._

  def epochs: Seq[Long] = dir.numbers(Dir)

  def read(epoch: Long): Option[RoutingEntry] = dir.read(s"$Dir/$epoch").map(fromJson(epoch, _))

  /** The entry in force at `epoch`. */
  def at(epoch: Long): Option[RoutingEntry] = epochs.filter(_ <= epoch).lastOption.flatMap(read)

  def write(entry: RoutingEntry): Unit = dir.write(s"$Dir/${entry.epoch}", toJson(entry))

  def delete(epoch: Long): Unit = dir.delete(s"$Dir/$epoch")
}

private[sql] object RoutingLog {
  val Dir = "routing"
  private val FormatVersion = 1

  private def toJson(e: RoutingEntry): JValue =
    ("format" -> FormatVersion) ~ ("epoch" -> e.epoch) ~ ("partitions" -> e.table.partitions) ~
      ("assignment" -> e.table.assignment.toSeq) ~ ("writtenAtMs" -> e.writtenAtMs) ~
      ("step" -> e.step.map { s =>
        ("migration" -> s.migration) ~ ("index" -> s.index) ~ ("steps" -> s.steps) ~
          ("strategy" -> s.strategy) ~ ("moves" -> s.moves) ~ ("opening" -> s.isOpening)
      })

  private def fromJson(epoch: Long, json: JValue): RoutingEntry = {
    implicit val formats: Formats = DefaultFormats
    val format = (json \ "format").extract[Int]
    if (format != FormatVersion) {
      throw BinshiftException.configuration(
        s"routing/$epoch has format $format; this binshift reads format $FormatVersion; use the " +
          "binshift version that wrote the checkpoint")
    }
    val step = json \ "step" match {
      case JNothing => None
      case s => Some(StepRef((s \ "migration").extract[String], (s \ "index").extract[Int],
        (s \ "steps").extract[Int], (s \ "strategy").extract[String], (s \ "moves").extract[Int],
        (s \ "opening").extract[Boolean]))
    }
    RoutingEntry(
      epoch,
      RoutingTable(
        (json \ "partitions").extract[Int],
        ArraySeq.unsafeWrapArray((json \ "assignment").extract[Array[Int]])),
      step,
      (json \ "writtenAtMs").extract[Long])
  }
}
