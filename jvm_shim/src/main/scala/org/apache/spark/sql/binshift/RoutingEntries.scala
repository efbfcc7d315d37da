package org.apache.spark.sql.binshift

import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.streaming.state.binshift._

/**
 * The routing log as the driver of a running query keeps it: listed once, and no longer than needed.
 *
 * Called on the stream's thread, under the router's lock.
 *
 * @param entriesToRetain how many are kept, beyond those that recovery needs
 */
private[binshift] final class RoutingEntries(dir: ControlDir, session: SparkSession, entriesToRetain: Int) {
  private val log = new RoutingLog(dir)

  /** The epochs that have an entry, ascending; read once and then kept up with what is written here. */
  private var epochs: Seq[Long] = Nil

  /** The entry in force at `epoch`, as the checkpoint has it. */
  def at(epoch: Long): Option[RoutingEntry] = log.at(epoch)

  /** The epoch of the newest entry before `epoch`. */
  def before(epoch: Long): Option[Long] = epochs.filter(_ < epoch).lastOption

  /** The newest entries up to `epoch`, oldest first; not more than `limit`. Any thread. */
  def upTo(epoch: Long, limit: Int): Seq[RoutingEntry] =
    log.epochs.filter(_ <= epoch).takeRight(limit).flatMap(log.read)

  /** Makes `entry` durable, and forgets those that nothing needs any more. */
  def write(entry: RoutingEntry): Unit = {
    log.write(entry)
    epochs = epochs.filter(_ < entry.epoch) :+ entry.epoch
    // Neither recovery, for which Spark keeps as many batches, nor the history needs older entries.
    val kept = math.max(entriesToRetain, session.sessionState.conf.minBatchesToRetain + 2)
    epochs.dropRight(kept).foreach(delete)
  }

  def delete(epoch: Long): Unit = {
    log.delete(epoch)
    CheckpointIds.forget(dir, epoch)
    epochs = epochs.filter(_ != epoch)
  }

  /** Deletes the entries of epochs that never came to be, when the log of offsets ends at `epoch`. */
  def dropAfter(epoch: Long): Unit = {
    epochs = log.epochs
    epochs.filter(_ > epoch).foreach(delete)
  }

  def deleteAll(): Unit = log.epochs.foreach(log.delete)
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
