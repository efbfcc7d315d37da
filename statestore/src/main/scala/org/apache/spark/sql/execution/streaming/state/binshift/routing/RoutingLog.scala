package org.apache.spark.sql.execution.streaming.state.binshift.routing

import scala.collection.immutable.ArraySeq

import org.json4s.{DefaultFormats, Formats, JNothing, JValue}

import org.apache.spark.sql.execution.streaming.state.binshift.BinshiftException
import org.apache.spark.sql.execution.streaming.state.binshift.checkpoint.{ControlDir, EntryName}
import org.json4s.JsonDSL._

/**
 * A routing table and the epoch from which on it is in force.
 *
 * @param step        the step of a migration that led to the table; `None` for the first table
 * @param writtenAtMs wall-clock time, milliseconds since 1970
 * @param previous    the epoch of the entry that this one follows, [[RoutingEntry.First]] if there is none
 */
private[sql] final case class RoutingEntry(
    epoch: Long, table: RoutingTable, step: Option[StepRef], writtenAtMs: Long, previous: Long = RoutingEntry.First) {

  /** What the log of offsets calls this entry. */
  lazy val name: EntryName = EntryName(epoch, table.checksum)

  /** `writtenAtMs` as files and answers have it. */
  def writtenAt: String = ControlDir.timeOf(writtenAtMs)
}

private[sql] object RoutingEntry {
  val First: Long = -1
}

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
 * epoch runs. Hence executors, which only ever ask for epochs that run, see valid entries only. Each entry names the one
 * before it, so that a hole is noticed by whoever replays across it.
 */
private[sql] final class RoutingLog(dir: ControlDir, folder: String = RoutingLog.Dir) {
  import RoutingLog._

  def epochs: Seq[Long] = dir.numbers(folder)

  def read(epoch: Long): Option[RoutingEntry] = dir.decoded(s"$folder/$epoch")(fromJson(epoch, _))

  /** The entry in force at `epoch`. */
  def at(epoch: Long): Option[RoutingEntry] = epochs.filter(_ <= epoch).lastOption.flatMap(read)

  def write(entry: RoutingEntry): Unit = dir.write(s"$folder/${entry.epoch}", toJson(entry))

  def delete(epoch: Long): Unit = dir.delete(s"$folder/$epoch")
}

private[sql] object RoutingLog {
  val Dir = "routing"
  /** Where entries wait of which a run does not know whether another one is in the midst of their epoch. */
  val Aside = "aside"
  private val FormatVersion = 1

  private def toJson(e: RoutingEntry): JValue =
    ("format" -> FormatVersion) ~ ("epoch" -> e.epoch) ~ ("partitions" -> e.table.partitions) ~
      ("assignment" -> e.table.assignment.toSeq) ~ ("written_at" -> e.writtenAt) ~ ("previous" -> e.previous) ~
      ("step" -> e.step.map { s =>
        ("migration_id" -> s.migration) ~ ("index" -> s.index) ~ ("steps" -> s.steps) ~
          ("strategy" -> s.strategy) ~ ("moves" -> s.moves) ~ ("opening" -> s.isOpening)
      })

  private def fromJson(epoch: Long, json: JValue): RoutingEntry = {
    implicit val formats: Formats = DefaultFormats
    val format = (json \ "format").extract[Int]
    if (format != FormatVersion) {
      throw BinshiftException("UNKNOWN_FORMAT", "file" -> s"$Dir/$epoch", "format" -> format).configuration(
        s"routing/$epoch has format $format; this binshift reads format $FormatVersion; use the " +
          "binshift version that wrote the checkpoint")
    }
    val step = json \ "step" match {
      case JNothing => None
      case s => Some(StepRef((s \ "migration_id").extract[String], (s \ "index").extract[Int],
            (s \ "steps").extract[Int], (s \ "strategy").extract[String], (s \ "moves").extract[Int],
            (s \ "opening").extract[Boolean]))
    }
    RoutingEntry(
      epoch,
      RoutingTable(
        (json \ "partitions").extract[Int],
        ArraySeq.unsafeWrapArray((json \ "assignment").extract[Array[Int]])),
      step,
      ControlDir.millisOf((json \ "written_at").extract[String]),
      (json \ "previous").extract[Long])
  }
}
