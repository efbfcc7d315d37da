package org.apache.spark.sql.binshift.routing

import org.apache.spark.SparkException
import org.apache.spark.sql.execution.streaming.state.binshift.BinshiftException
import org.apache.spark.sql.execution.streaming.state.binshift.checkpoint.{CheckpointIds, ControlDir, EntryName}
import org.apache.spark.sql.execution.streaming.state.binshift.routing.{RoutingEntry, RoutingLog, StepRef}
import org.apache.spark.util.ThreadUtils

/**
 * The routing log as the driver of a running query keeps it: listed once, and no longer than needed.
 *
 * Called under the router's lock, but for `forget`, which the thread that prunes calls for entries that are older than all
 * that the router asks for.
 */
private[binshift] final class RoutingEntries(dir: ControlDir) {
  private val log = new RoutingLog(dir)
  private val aside = new RoutingLog(dir, RoutingLog.Aside)

  /** The epochs that have an entry, ascending; kept up with what is written here. */
  @volatile private var known: Seq[Long] = Nil

  def epochs: Seq[Long] = known

  /** Lists the log. */
  def listed(): Seq[Long] = {
    known = log.epochs
    known
  }

  def read(epoch: Long): Option[RoutingEntry] = log.read(epoch)

  /** Some at a time, because each is a request. */
  private def readAll(epochs: Seq[Long]): Seq[RoutingEntry] =
    if (epochs.size < 2) epochs.flatMap(log.read)
    else
      try ThreadUtils.parmap(epochs, "binshift-routing-log", math.min(epochs.size, RoutingEntries.AtATime))(log.read).flatten
      catch { case e: SparkException if e.getCause.isInstanceOf[BinshiftException] => throw e.getCause }

  /** The entry in force at `epoch`, as the checkpoint has it. */
  def at(epoch: Long): Option[RoutingEntry] = log.at(epoch)

  /** The epoch of the newest entry before `epoch`. */
  def before(epoch: Long): Option[Long] = known.filter(_ < epoch).lastOption

  /** The newest entries up to `epoch`, oldest first; not more than `limit`. Any thread. */
  def upTo(epoch: Long, limit: Int): Seq[RoutingEntry] =
    readAll(log.epochs.filter(_ <= epoch).takeRight(limit))

  /** The entries of a migration up to `epoch`, oldest first: others do not come between them. Any thread. */
  def of(migration: String, epoch: Long): Seq[RoutingEntry] =
    log.epochs.filter(_ <= epoch).reverseIterator.flatMap(log.read)
      .dropWhile(!_.step.exists(_.migration == migration)).takeWhile(_.step.exists(_.migration == migration)).toSeq.reverse

  /** Makes `entry` durable. */
  def write(entry: RoutingEntry): Unit = {
    log.write(entry)
    change(_.filter(_ < entry.epoch) :+ entry.epoch)
  }

  def forget(epoch: Long): Unit = {
    // The entry last: without it, nothing would look for the other file.
    CheckpointIds.forget(dir, epoch)
    log.delete(epoch)
    change(_.filter(_ != epoch))
  }

  /**
   * Takes an entry out of the log that may be in force for another run, and keeps it where nobody takes it for one of the
   * log. Its ids stay: they are those of the epoch before.
   */
  def setAside(epoch: Long): Unit = {
    log.read(epoch).foreach(aside.write)
    log.delete(epoch)
    change(_.filter(_ != epoch))
  }

  /** An entry that was set aside and turned out to be in force. */
  def fromAside(name: EntryName): Option[RoutingEntry] = aside.read(name.epoch).filter(_.name == name)

  /** Once it is known that none of them is in force. */
  def forgetAside(): Unit = aside.epochs.foreach { epoch =>
    if (!known.contains(epoch)) CheckpointIds.forget(dir, epoch)
    aside.delete(epoch)
  }

  /** Makes an entry in force durable again if it is not in the log any more. */
  def keep(entry: RoutingEntry): Unit = if (log.read(entry.epoch).isEmpty) log.write(entry)

  private def change(to: Seq[Long] => Seq[Long]): Unit = synchronized { known = to(known) }
}

private object RoutingEntries {
  /** Entries that are read at a time. */
  private val AtATime = 8
}

/**
 * The tables that matter while an epoch is planned.
 *
 * @param current   the entry in force at the epoch planned last, or at the next one if there is none yet
 * @param scheduled the entry that is durable for the epoch after it
 */
private[binshift] final case class TablesInForce(
    current: Option[RoutingEntry] = None, scheduled: Option[RoutingEntry] = None) {

  private def entries: Seq[RoutingEntry] = scheduled.toSeq ++ current

  private def of(migration: String): Seq[(Long, StepRef)] =
    entries.flatMap(e => e.step.filter(_.migration == migration).map(e.epoch -> _))

  /** Steps of `migration` whose tables are in force, or durable for the next epoch. */
  def stepsTaken(migration: String): Int = of(migration).map(_._2.index + 1).maxOption.getOrElse(0)

  /**
   * Steps of `migration` that are committed, if the query has committed up to `epoch`. They are taken one by one, so
   * the one before an uncommitted step is committed.
   */
  def stepsCommitted(migration: String, epoch: Long): Int = of(migration).map { case (at, step) =>
    if (at <= epoch || step.isOpening) step.index + 1 else step.index
  }.maxOption.getOrElse(0)

  /** The epoch of the newest of these entries that is of `migration`. */
  def newestOf(migration: String): Option[Long] = of(migration).map(_._1).maxOption

  /** The step that takes effect at `epoch`. */
  def stepAt(epoch: Long): Option[StepRef] =
    entries.filter(_.epoch == epoch).flatMap(_.step).find(!_.isOpening)
}
