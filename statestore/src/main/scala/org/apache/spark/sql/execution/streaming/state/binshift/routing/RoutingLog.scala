package org.apache.spark.sql.execution.streaming.state.binshift.routing

import scala.collection.immutable.ArraySeq

import org.apache.hadoop.fs.Path
import org.json4s.{DefaultFormats, Formats, JInt, JNothing, JString, JValue}
import org.json4s.jackson.JsonMethods.parse

import org.apache.spark.sql.execution.streaming.state.binshift.BinshiftException
import org.apache.spark.sql.execution.streaming.state.binshift.checkpoint.{ControlDir, EntryName}
import org.json4s.JsonDSL._

/**
 * A routing table, with the epoch from which on it is in force.
 *
 * @param name        the name by which others refer to it
 * @param step        the step of a migration that led to the table; `None` for the first table
 * @param writtenAtMs wall-clock time, milliseconds since 1970
 * @param previous    the entry that this one follows
 * @param run         the run that wrote it; `None` if that was before entries said so
 */
private[sql] final case class RoutingEntry private (
    name: EntryName, table: RoutingTable, step: Option[StepRef], writtenAtMs: Long, previous: Option[EntryName],
    run: Option[String]) {
  def epoch: Long = name.epoch

  /** A copy of this entry, not yet written, that follows `entry`. */
  def after(entry: RoutingEntry): RoutingEntry =
    RoutingEntry(epoch, table, step, Some(entry.name), run.getOrElse(""), writtenAtMs)

  /** True if this entry was made to follow `entry`. */
  def follows(entry: RoutingEntry): Boolean =
    previous.exists(p => p == entry.name || p.checksum == EntryName.Unknown && p.epoch == entry.epoch)

  /** `writtenAtMs` in the format of files and answers. */
  def writtenAt: String = ControlDir.timeOf(writtenAtMs)
}

private[sql] object RoutingEntry {

  /** An entry that hasn't been written yet. */
  def apply(
      epoch: Long, table: RoutingTable, step: Option[StepRef], previous: Option[EntryName], run: String,
      writtenAtMs: Long = System.currentTimeMillis()): RoutingEntry = {
    val unnamed = new RoutingEntry(EntryName(epoch, EntryName.Unknown), table, step, writtenAtMs, previous, Some(run))
    unnamed.copy(name = EntryName.of(epoch, RoutingLog.textOf(unnamed)))
  }

  private[routing] def read(
      name: EntryName, table: RoutingTable, step: Option[StepRef], writtenAtMs: Long, previous: Option[EntryName],
      run: Option[String]): RoutingEntry =
    // Entries that were written before their files had checksums in their names are named by the checksum of their table.
    new RoutingEntry(if (name.checksum == EntryName.Unknown) name.copy(checksum = table.checksum) else name, table, step,
      writtenAtMs, previous, run)
}

/**
 * @param index     position of the step in its plan, from 0
 * @param isOpening whether the table opens partitions for the step after this one, and no bin moves
 */
private[sql] final case class StepRef(
    migration: String, index: Int, steps: Int, strategy: String, moves: Int, isOpening: Boolean = false)

/**
 * The files of routing entries. Each is written once, under a name that no other decision has, and names the entry that it follows.
 * So going back from the entry that was in force at an epoch leads to those of all epochs before. Other entries were written by
 * drivers that got no further. They are not used and are no reason to refuse anything, and are deleted when entries of their
 * epochs are pruned.
 *
 * An entry is written before anything names it: before Spark logs its epoch, and before the claim of a run.
 */
private[sql] final class RoutingLog(dir: ControlDir) {
  import RoutingLog._

  /** The names of all entries, ascending by epoch, whether they were ever in force or not. */
  def names: Seq[EntryName] = dir.names(Dir).flatMap(EntryName.ofFile).sortBy(n => (n.epoch, n.checksum))

  /** Reads an entry; `None` if it doesn't exist. */
  def read(name: EntryName): Option[RoutingEntry] = {
    val found = if (name.checksum == EntryName.Unknown) None
    else dir.text(s"$Dir/${name.file}").map { text =>
      val file = new Path(dir.path, s"$Dir/${name.file}")
      if (EntryName.of(name.epoch, text) != name)
        throw BinshiftException("ROUTING_LOG_DAMAGED", "epoch" -> name.epoch).configuration(
          s"the content of $file is not that of its name, so it was changed; restore it from a copy of the checkpoint")
      ControlDir.understood(file)(fromJson(name, parse(text)))
    }
    found.orElse(old(Dir, name)).orElse(old(Aside, name))
  }

  /** Reads an entry that perhaps nothing names; `None` if it can't be understood. */
  def unnamed(name: EntryName): Option[RoutingEntry] =
    try read(name)
    catch { case _: BinshiftException => None }

  /** All readable entries of an epoch, whether they were ever in force or not. */
  def allOf(epoch: Long): Seq[RoutingEntry] = names.filter(_.epoch == epoch).flatMap(unnamed)

  /** The entry that was in force at `epoch`, going back from one that was in force then or later. */
  def inForce(later: RoutingEntry, epoch: Long): Option[RoutingEntry] = new Owners(Vector(later), read).upTo(epoch)

  private def old(folder: String, name: EntryName): Option[RoutingEntry] =
    dir.decoded(s"$folder/${name.epoch}")(fromJson(name.copy(checksum = EntryName.Unknown), _))
      .filter(e => name.checksum == EntryName.Unknown || e.name == name)

  /** Writes an entry; does nothing if it exists. */
  def write(entry: RoutingEntry): Unit = dir.create(s"$Dir/${entry.name.file}", textOf(entry))

  def delete(name: EntryName): Unit = dir.delete(s"$Dir/${name.file}")
}

private[sql] object RoutingLog {
  val Dir = "routing"
  /** Older versions moved entries here if another run might have been in the middle of their epoch. */
  private val Aside = "aside"
  private val FormatVersion = 1

  private[routing] def textOf(e: RoutingEntry): String = ControlDir.textOf(
    ("format" -> FormatVersion) ~ ("epoch" -> e.epoch) ~ ("partitions" -> e.table.partitions) ~
      ("assignment" -> e.table.assignment.toSeq) ~ ("written_at" -> e.writtenAt) ~ ("run" -> e.run) ~
      ("previous" -> e.previous.map(_.file)) ~
      ("step" -> e.step.map { s =>
        ("migration_id" -> s.migration) ~ ("index" -> s.index) ~ ("steps" -> s.steps) ~
          ("strategy" -> s.strategy) ~ ("moves" -> s.moves) ~ ("opening" -> s.isOpening)
      }))

  private def fromJson(name: EntryName, json: JValue): RoutingEntry = {
    implicit val formats: Formats = DefaultFormats
    ControlDir.requireFormat(json, s"$Dir/${name.file}", FormatVersion)
    val step = json \ "step" match {
      case JNothing => None
      case s => Some(StepRef((s \ "migration_id").extract[String], (s \ "index").extract[Int],
            (s \ "steps").extract[Int], (s \ "strategy").extract[String], (s \ "moves").extract[Int],
            (s \ "opening").extract[Boolean]))
    }
    RoutingEntry.read(
      name,
      RoutingTable(
        (json \ "partitions").extract[Int],
        ArraySeq.unsafeWrapArray((json \ "assignment").extract[Array[Int]])),
      step,
      ControlDir.millisOf((json \ "written_at").extract[String]),
      previousOf(json \ "previous"),
      (json \ "run").extractOpt[String])
  }

  /** The entry that a file says it follows. Older entries only give an epoch, or -1 if there is none. */
  private def previousOf(json: JValue): Option[EntryName] = json match {
    case JString(file) => Some(EntryName.ofFile(file).getOrElse(throw new IllegalArgumentException(s"it follows '$file'")))
    case JInt(epoch) => Some(EntryName(epoch.toLong, EntryName.Unknown)).filter(_.epoch >= 0)
    case JNothing => None
    case other => throw new IllegalArgumentException(s"it follows $other")
  }
}
