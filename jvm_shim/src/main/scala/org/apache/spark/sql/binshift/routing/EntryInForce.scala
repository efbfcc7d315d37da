package org.apache.spark.sql.binshift.routing

import org.apache.spark.sql.binshift.internals.SparkInternals
import org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution
import org.apache.spark.sql.execution.streaming.state.binshift.BinshiftException
import org.apache.spark.sql.execution.streaming.state.binshift.checkpoint.{ControlDir, EntryName, RunHistory}
import org.apache.spark.sql.execution.streaming.state.binshift.routing.RoutingEntry

/**
 * Finds the routing entry that is in force at the first epoch of a run. Only reads.
 *
 * An entry that is lost, is older than the log of offsets or was written by somebody else is an error: any other entry, though
 * it may have as many partitions, has keys elsewhere. What the log has to say is known from two places: Spark has
 * logged the name of the entry in force with each epoch but the first ones of runs, and `runs.json` has it for the
 * first epoch of the last run.
 *
 * In real-time mode an entry of the very epoch is never in force: the epoch was logged by nobody, and runs as a new one,
 * under the table of the one before it.
 *
 * @param isUnderWay whether a migration is not over: a step of one that was cancelled is void until its epoch is logged
 *
 * Costs a listing, and a read of two or three small files; called on the stream's thread once for a run.
 */
private[binshift] final class EntryInForce(
    query: MicroBatchExecution, dir: ControlDir, entries: RoutingEntries, isRealTime: Boolean, isUnderWay: String => Boolean) {
  import EntryInForce._

  /**
   * @param n           the partitions that Spark has logged
   * @param isAgain     whether an earlier run has logged the epoch
   * @param firstBinned the first binned epoch of the checkpoint
   */
  def at(epoch: Long, n: Int, isAgain: Boolean, firstBinned: Long): RoutingEntry = {
    val listed = entries.listed()
    val named = lastNamed(epoch, isAgain, firstBinned)
    // A run that did not know of it has set it aside, and this one goes on from the other run.
    val back = named.map(_.entry).filterNot(e => listed.contains(e.epoch)).flatMap(entries.fromAside)
    val epochs = (listed ++ back.map(_.epoch)).sorted
    def read(e: Long): Option[RoutingEntry] = back.filter(_.epoch == e).orElse(entries.read(e))
    def follows(e: RoutingEntry): Boolean =
      e.previous < 0 || epochs.filter(_ < e.epoch).lastOption.contains(e.previous)
    val own = Option.when(!isRealTime && epochs.contains(epoch))(epoch).flatMap(read).filter { e =>
      // Without a name in the log of offsets, the epoch is the first one of a run: partitions decide. What follows an
      // entry that is not there is left of epochs that were lost.
      named.filter(_.at == epoch).fold(
        e.table.partitions == n && follows(e) && (isAgain || e.step.forall(s => isUnderWay(s.migration))))(_.entry == e.name)
    }
    val entry = own.orElse(epochs.filter(_ < epoch).lastOption.flatMap(read)).getOrElse(
      throw BinshiftException("ROUTING_LOG_DAMAGED", "epoch" -> epoch).configuration(
        s"${dir.path} has no routing entry at or before epoch $epoch; restore it from a copy of the checkpoint"))
    named.foreach(requireNamed(_, entry, epochs, read))
    val before = entry.previous
    for (older <- epochs.filter(_ < entry.epoch).lastOption if before >= 0 && older != before) {
      val next =
        if (older < before) s"restore routing/$before from a copy of the checkpoint"
        else s"one of the two is not of this query, restore ${dir.path}/routing from a copy of the checkpoint"
      throw BinshiftException("ROUTING_LOG_DAMAGED", "epoch" -> entry.epoch).configuration(
        s"${dir.path}/routing/${entry.epoch} follows the entry of epoch $before, but the newest one before it is that " +
          s"of epoch $older; $next")
    }
    entry
  }

  private def requireNamed(
      named: Named, entry: RoutingEntry, epochs: Seq[Long], read: Long => Option[RoutingEntry]): Unit = {
    val found =
      if (entry.epoch <= named.at) Some(entry) else epochs.filter(_ <= named.at).lastOption.flatMap(read)
    if (!found.exists(_.name == named.entry))
      throw BinshiftException("ROUTING_LOG_DAMAGED", "epoch" -> named.entry.epoch).configuration(
        s"epoch ${named.at} was run with the routing table of epoch ${named.entry.epoch} (${named.entry.render}), but the " +
          s"newest entry up to it in ${dir.path}/routing is ${found.fold("none")(_.name.render)}: the entry was lost or " +
          "changed, or the directory is older than the rest of the checkpoint; restore routing/" +
          s"${named.entry.epoch} from a copy, or take the epochs from there on out of the logs of offsets and commits")
  }

  private def loggedAtMs(epoch: Long): Option[Long] = query.offsetLog.get(epoch).flatMap(SparkInternals.loggedAtMs)

  /** The newest epoch up to `epoch` of which the entry in force is known. */
  private def lastNamed(epoch: Long, isAgain: Boolean, firstBinned: Long): Option[Named] = {
    val newest = if (isAgain) epoch else epoch - 1
    val logged = Iterator.iterate(newest)(_ - 1).take(MaxLogged).takeWhile(_ >= firstBinned)
      .map(e => query.offsetLog.get(e).map(e -> SparkInternals.entryName(_)))
      .takeWhile(_.isDefined).flatten.collectFirst { case (e, Some(name)) => Named(e, name) }
    // The run may have begun with the epoch as it was logged before somebody took it out of the log.
    val began = RunHistory.read(dir).runs.lastOption
      .filter(r => r.began._1 < epoch || r.hasBegun(epoch, loggedAtMs(epoch))).map(_.began)
      .collect { case (at, name) if at <= newest && at >= firstBinned => Named(at, name) }
    (logged ++ began).maxByOption(_.at)
  }
}

private object EntryInForce {
  /** Epochs that are looked at for the name of an entry: each of a run's but its first one has it. */
  private val MaxLogged = 8

  /** @param at an epoch at which `entry` was in force */
  private final case class Named(at: Long, entry: EntryName)
}
