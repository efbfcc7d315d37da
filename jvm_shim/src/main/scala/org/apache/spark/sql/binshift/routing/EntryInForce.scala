package org.apache.spark.sql.binshift.routing

import org.apache.spark.sql.binshift.internals.{SparkInternals, StreamLogs}
import org.apache.spark.sql.execution.streaming.runtime.StreamExecution
import org.apache.spark.sql.execution.streaming.state.binshift.BinshiftException
import org.apache.spark.sql.execution.streaming.state.binshift.checkpoint._
import org.apache.spark.sql.execution.streaming.state.binshift.routing.{RoutingEntry, RoutingLog}

/**
 * Finds the routing entry that is in force at the first epoch of a run. Only reads.
 *
 * It is the entry that the log of offsets or the claim of a run names, and it must exist: any other entry has keys in other places,
 * even if it has as many partitions. If nothing names an entry for this very epoch, the entry before it is in force, or an entry
 * that follows that one and was made for the epoch by a run that didn't come to log it.
 *
 * In real-time mode, an entry for this very epoch is never in force: nobody has logged the epoch, so it runs as a new one, under the
 * table of the epoch before it.
 *
 * Costs a listing, and a read of two or three small files. Called on the stream's thread, once for a run.
 *
 * @param isUnderWay whether a migration isn't over. A step of a cancelled migration is void until its epoch is logged.
 */
private[binshift] final class EntryInForce(
    query: StreamExecution, dir: ControlDir, history: => RunHistory, isRealTime: Boolean, isUnderWay: String => Boolean) {
  private val log = new RoutingLog(dir)
  private val logged = new LoggedEpochs(dir, e => query.offsetLog.get(e).map(conf), history)

  private def conf(offsets: StreamLogs.Offsets): LoggedConf =
    LoggedConf(StreamLogs.confOf(offsets).getOrElse(Map.empty), SparkInternals.loggedAtMs(offsets))

  /**
   * @param n           the partitions that Spark has logged
   * @param isAgain     whether an earlier run has logged the epoch
   * @param firstBinned the first binned epoch of the checkpoint
   */
  def at(epoch: Long, n: Int, isAgain: Boolean, firstBinned: Long): RoutingEntry = {
    val newest = if (isAgain) epoch else epoch - 1
    val named = known(newest, firstBinned)
    val entry = named.map(of(_, newest)).orElse(log.names.filter(_.epoch < epoch).lastOption.flatMap(log.read)).getOrElse(
      throw BinshiftException("ROUTING_LOG_DAMAGED", "epoch" -> epoch).configuration(
        s"${dir.path} has no routing entry at or before epoch $epoch; restore it from a copy of the checkpoint"))
    if (isAgain && named.exists(_.at == epoch)) entry
    else {
      // Nothing is known of epochs in between only if the checkpoint has lost its claims.
      def next(e: RoutingEntry) = Some(followers(e, at => at < epoch && named.forall(at > _.at))).filter(_.size == 1).map(_.head)
      val before = Iterator.iterate(Option(entry))(_.flatMap(next)).takeWhile(_.isDefined).flatten.toSeq.last
      def isTaken(e: RoutingEntry) = e.table.partitions == n && (isAgain || e.step.forall(s => isUnderWay(s.migration)))
      if (isRealTime) before else followers(before, _ == epoch).filter(isTaken).lastOption.getOrElse(before)
    }
  }

  /** The step that was made durable for `epoch`, if nobody has logged the epoch yet and the step's migration is still under way. */
  def prepared(epoch: Long): Option[RoutingEntry] = for {
    named <- known(epoch - 1, 0)
    now <- log.read(named.entry).flatMap(log.inForce(_, epoch - 1))
    entry <- followers(now, _ == epoch).filter(_.step.exists(s => isUnderWay(s.migration))).lastOption
  } yield entry

  /** For clients that ask before the run plans an epoch: the entry in force at `last`, or after it if that has `n` partitions. */
  def shown(last: Long, n: Int): Option[RoutingEntry] = {
    val now =
      known(last, 0).fold(log.names.filter(_.epoch <= last).lastOption)(named => Some(named.entry)).flatMap(log.read)
        .flatMap(log.inForce(_, last))
    now.map(e => followers(e, at => !isRealTime && at == last + 1).filter(_.table.partitions == n).lastOption.getOrElse(e))
  }

  /** An entry from which one can go back to the entry in force at `last`: that entry if it is known, or one of a later epoch. */
  private def known(last: Long, first: Long): Option[NamedEntry] = {
    val upTo = logged.upTo(last, first)
    upTo.filter(_.at == last).orElse(logged.claimedAfter(last).filter(n => log.unnamed(n.entry).isDefined)).orElse(upTo)
  }

  private def of(named: NamedEntry, last: Long): RoutingEntry = log.read(named.entry).flatMap(log.inForce(_, last)).getOrElse(
    throw BinshiftException("ROUTING_LOG_DAMAGED", "epoch" -> named.entry.epoch).configuration(
      s"epoch ${named.at} was run with the routing table of epoch ${named.entry.epoch} (${named.entry.render}), which is not in " +
        s"${dir.path}/routing: the entry was lost or changed, or the directory is older than the rest of the checkpoint; restore " +
        s"routing/${named.entry.file} from a copy, or take the epochs from there on out of the logs of offsets and commits"))

  /** The entries of wanted epochs that follow `entry`, as they were written. */
  private def followers(entry: RoutingEntry, isWanted: Long => Boolean): Seq[RoutingEntry] =
    log.names.filter(n => n.epoch > entry.epoch && isWanted(n.epoch)).flatMap(log.unnamed).filter(_.follows(entry)).sortBy(
      _.writtenAtMs)
}
