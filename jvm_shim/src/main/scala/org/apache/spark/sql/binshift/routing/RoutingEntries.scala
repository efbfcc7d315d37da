package org.apache.spark.sql.binshift.routing

import org.apache.spark.sql.execution.streaming.state.binshift.Trace
import org.apache.spark.sql.execution.streaming.state.binshift.checkpoint.{CheckpointIds, ControlDir, EntryName}
import org.apache.spark.sql.execution.streaming.state.binshift.routing.{RoutingEntry, RoutingLog, StepRef}
import org.apache.spark.util.ThreadUtils

/**
 * The driver's view of the routing log. The log is listed when a run begins; from then on, the driver keeps track of the entries.
 *
 * Called under the lock of the run, except for methods that say otherwise.
 */
private[binshift] final class RoutingEntries(dir: ControlDir) {
  private val log = new RoutingLog(dir)
  @volatile private var known = Set.empty[EntryName]

  /** How many entries there are, as far as this run knows. */
  def count: Int = known.size

  /** Lists the log. */
  def list(): Unit = known = log.names.toSet

  /** All that there are as far as this run knows, ascending by epoch, in force or not. */
  def names: Seq[EntryName] = known.toSeq.sortBy(n => (n.epoch, n.checksum))

  def read(name: EntryName): Option[RoutingEntry] = log.read(name)

  /**
   * The entries from `newest` back to the oldest that exists, but at most `limit`. Each entry names the one before it. May be called
   * from any thread.
   */
  def upTo(newest: RoutingEntry, limit: Int): Seq[RoutingEntry] = {
    // Each read is a request, so several are made at a time. Listed entries that were never in force are skipped.
    lazy val fetched = readAll(log.names.filter(_.epoch < newest.epoch).takeRight(limit))
    def before(entry: RoutingEntry) = entry.previous.flatMap(p => fetched.find(entry.follows).orElse(log.read(p)))
    Iterator.iterate(Option(newest))(_.flatMap(before)).take(limit).takeWhile(_.isDefined).flatten.toSeq
  }

  private def readAll(names: Seq[EntryName]): Seq[RoutingEntry] =
    if (names.size < 2) names.flatMap(log.unnamed)
    else ThreadUtils.parmap(names, "binshift-routing-log", math.min(names.size, RoutingEntries.AtATime))(log.unnamed).flatten

  /**
   * The entries of migrations that followed each other up to `newest`, oldest first. No others come between them. May be called from
   * any thread.
   */
  def of(migrations: Set[String], newest: RoutingEntry): Seq[RoutingEntry] = {
    def isOf(entry: RoutingEntry) = entry.step.exists(s => migrations(s.migration))
    Iterator.iterate(Option(newest))(_.flatMap(_.previous).flatMap(log.read)).takeWhile(_.isDefined).flatten
      .dropWhile(!isOf(_)).takeWhile(isOf).toSeq.reverse
  }

  /** Makes `entry` durable. */
  def write(entry: RoutingEntry): Unit = {
    if (Trace.isOn) Trace("entry", dir.checkpoint, "entry" -> entry.name.render, "previous" -> entry.previous.map(_.render),
      "run" -> entry.run,
      "partitions" -> entry.table.partitions, "owners" -> entry.table.assignment, "migration" -> entry.step.map(_.migration),
      "step" -> entry.step.map(_.index), "opening" -> entry.step.map(_.isOpening))
    log.write(entry)
    change(_ + entry.name)
  }

  /** Deletes an entry that this run has written and that nothing names yet. */
  def withdraw(name: EntryName): Unit = {
    if (Trace.isOn) Trace("deletes entries", dir.checkpoint, "entries" -> Seq(name.render), "withdrawn" -> true)
    log.delete(name)
    change(_ - name)
  }

  /** Deletes all entries of epochs before `oldest`, in force or not; returns how many. Called by the thread that prunes. */
  def deleteBefore(oldest: Long): Int = {
    val gone = log.names.filter(_.epoch < oldest)
    if (Trace.isOn && gone.nonEmpty) Trace("deletes entries", dir.checkpoint, "entries" -> gone.map(_.render))
    gone.foreach { name =>
      // The entry is deleted last: without it, nobody would find the other file.
      CheckpointIds.forget(dir, name.epoch)
      log.delete(name)
    }
    change(_ -- gone)
    gone.size
  }

  private def change(to: Set[EntryName] => Set[EntryName]): Unit = synchronized { known = to(known) }
}

private object RoutingEntries {
  /** How many entries are read at a time. */
  private val AtATime = 8
}

/**
 * The tables that matter while an epoch is planned.
 *
 * @param current   the entry in force at the epoch planned last; before any was planned, the one in force at the next epoch
 * @param scheduled the entry that is durable for the epoch after it
 */
private[binshift] final case class TablesInForce(
    current: Option[RoutingEntry] = None, scheduled: Option[RoutingEntry] = None) {

  /** The entry that the next epoch uses, as far as is known. */
  def newest: Option[RoutingEntry] = scheduled.orElse(current)

  private def entries: Seq[RoutingEntry] = scheduled.toSeq ++ current

  private def of(migration: String): Seq[(Long, StepRef)] =
    entries.flatMap(e => e.step.filter(_.migration == migration).map(e.epoch -> _))

  /** Steps of `migration` whose tables are in force, or durable for the next epoch. */
  def stepsTaken(migration: String): Int = of(migration).map(_._2.index + 1).maxOption.getOrElse(0)

  /**
   * How many steps of `migration` are committed, if the query has committed up to `epoch`. Steps are taken one by one, so the step
   * before an uncommitted one is committed.
   */
  def stepsCommitted(migration: String, epoch: Long): Int = of(migration).map { case (at, step) =>
    if (at <= epoch || step.isOpening) step.index + 1 else step.index
  }.maxOption.getOrElse(0)

  /** The epoch of the newest of these entries that belongs to `migration`. */
  def newestOf(migration: String): Option[Long] = of(migration).map(_._1).maxOption

  /** The step that takes effect at `epoch`. */
  def stepAt(epoch: Long): Option[StepRef] =
    entries.filter(_.epoch == epoch).flatMap(_.step).find(!_.isOpening)
}
