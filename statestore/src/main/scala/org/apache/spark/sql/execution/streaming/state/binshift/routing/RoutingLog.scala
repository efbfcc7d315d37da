package org.apache.spark.sql.execution.streaming.state.binshift.routing

import scala.collection.immutable.ArraySeq
import scala.util.Try

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
 * @param earlier     the tables of entries before this one, the newest first, for as long as there is room
 */
private[sql] final case class RoutingEntry(
    epoch: Long, table: RoutingTable, step: Option[StepRef], writtenAtMs: Long, previous: Long = RoutingEntry.First,
    earlier: Seq[EarlierTable] = Nil) {

  /** The entry, which comes after `before`. */
  def following(before: RoutingEntry): RoutingEntry = {
    val all = EarlierTable.of(before, table) +: before.earlier
    val changes = all.scanLeft(0)(_ + _.bins.size).tail
    // An entry stays as small as two tables.
    val held = changes.takeWhile(_ <= table.bins).size
    copy(previous = before.epoch, earlier = all.take(math.min(held, RoutingEntry.MaxEarlier)))
  }

  /** The tables of `earlier`, the newest first, as far as each is the one that was written. */
  def tablesBefore: Iterator[(EarlierTable, RoutingTable)] =
    earlier.iterator.scanLeft((Option.empty[EarlierTable], Option(table))) { case ((_, next), e) =>
      (Some(e), next.flatMap(n => Try(e.before(n)).toOption).filter(_.checksum == e.checksum))
    }.drop(1).takeWhile(_._2.isDefined).collect { case (Some(e), Some(before)) => (e, before) }

  /** What the log of offsets calls this entry. */
  lazy val name: EntryName = EntryName(epoch, table.checksum)

  /** `writtenAtMs` as files and answers have it. */
  def writtenAt: String = ControlDir.timeOf(writtenAtMs)
}

private[sql] object RoutingEntry {
  val First: Long = -1

  /** Earlier tables that an entry has at most, so that a recovery across so many steps reads one entry. */
  private val MaxEarlier = 128
}

/**
 * A table that was in force before that of an entry, as its difference to the one that came after it.
 *
 * @param epoch    from which on it was in force
 * @param previous the epoch of the entry before
 * @param checksum of the table
 * @param bins     those that had another owner
 * @param owners   of these bins
 */
private[sql] final case class EarlierTable(
    epoch: Long, previous: Long, partitions: Int, checksum: Long, bins: Seq[Int], owners: Seq[Int]) {

  /** The table that was in force before `next`. */
  def before(next: RoutingTable): RoutingTable = {
    val assignment = next.assignment.toArray
    bins.lazyZip(owners).foreach((bin, owner) => assignment(bin) = owner)
    RoutingTable(partitions, ArraySeq.unsafeWrapArray(assignment))
  }
}

private[sql] object EarlierTable {
  def of(entry: RoutingEntry, next: RoutingTable): EarlierTable = {
    val bins = entry.table.movedIn(next).toSeq.sorted
    EarlierTable(
      entry.epoch, entry.previous, entry.table.partitions, entry.table.checksum, bins, bins.map(entry.table.owner))
  }
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
      ("assignment" -> e.table.assignment.toSeq) ~ ("written_at" -> e.writtenAt) ~ ("previous" -> e.previous) ~
      ("step" -> e.step.map { s =>
        ("migration_id" -> s.migration) ~ ("index" -> s.index) ~ ("steps" -> s.steps) ~
          ("strategy" -> s.strategy) ~ ("moves" -> s.moves) ~ ("opening" -> s.isOpening)
      }) ~
      ("earlier" -> e.earlier.map { t =>
        ("epoch" -> t.epoch) ~ ("previous" -> t.previous) ~ ("partitions" -> t.partitions) ~ ("checksum" -> t.checksum) ~
          ("bins" -> t.bins) ~ ("owners" -> t.owners)
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
      (json \ "previous").extract[Long],
      (json \ "earlier").extract[Seq[EarlierTable]])
  }
}
