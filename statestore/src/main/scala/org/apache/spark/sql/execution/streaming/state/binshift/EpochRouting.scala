package org.apache.spark.sql.execution.streaming.state.binshift

import java.util.concurrent.ConcurrentHashMap

import scala.jdk.CollectionConverters._

import org.apache.hadoop.conf.Configuration

import org.apache.spark.TaskContext

/**
 * The routing of one run of a query, as its executors see it.
 *
 * Thread-safe; shared by all stores of the run in this JVM, so that a table is read once per executor
 * and not once per store. Keeps the last [[EpochRouting.MaxEntries]] tables.
 */
private[binshift] final class EpochRouting(runId: String, log: RoutingLog, readIds: Long => CheckpointIds) {
  private val entries = new ConcurrentHashMap[Long, RoutingEntry]()
  private val ids = new ConcurrentHashMap[Long, CheckpointIds]()

  /** The table in force at `epoch` and, if it took effect at `epoch`, the one that it replaced. */
  def at(epoch: Long): EpochTables = {
    val (now, before) = hinted(epoch).getOrElse(listed(epoch))
    EpochTables(entry(now).table, before.map(entry(_).table))
  }

  /**
   * The entries in force as the driver named them when it planned the batch, which saves listing the
   * log. A job that the user submits from a thread of a foreign pool may carry the property of
   * another batch or none, hence the check of run and epoch.
   */
  private def hinted(epoch: Long): Option[(Long, Option[Long])] =
    Option(TaskContext.get()).flatMap(c => Option(c.getLocalProperty(BinshiftConf.RoutingHint)))
      .flatMap(RoutingHint.parse)
      .collect { case RoutingHint(`runId`, `epoch`, now, before) => (now, before) }

  private def listed(epoch: Long): (Long, Option[Long]) = {
    val upTo = log.epochs.filter(_ <= epoch)
    val now = upTo.lastOption.getOrElse(missing(epoch))
    (now, if (now == epoch) upTo.dropRight(1).lastOption else None)
  }

  private def entry(epoch: Long): RoutingEntry = {
    val found = entries.computeIfAbsent(epoch, e => log.read(e).getOrElse(missing(e)))
    dropOld(entries)
    found
  }

  /** The ids with which `version` was committed; only asked for under checkpoint format 2. */
  def checkpointIds(version: Long): CheckpointIds = {
    val found = ids.computeIfAbsent(version, v => readIds(v))
    dropOld(ids)
    found
  }

  private def dropOld(cache: ConcurrentHashMap[Long, _]): Unit =
    if (cache.size > EpochRouting.MaxEntries) {
      cache.keySet.asScala.toSeq.sorted.dropRight(EpochRouting.MaxEntries).foreach(e => cache.remove(e))
    }

  private def missing(epoch: Long): Nothing = throw BinshiftException.configuration(
    s"the routing log has no entry for epoch $epoch; restore <checkpoint>/binshift/routing from a " +
      "copy of the checkpoint")
}

/**
 * @param now    the table in force
 * @param before the table in force one epoch earlier, if it was another one
 */
private[binshift] final case class EpochTables(now: RoutingTable, before: Option[RoutingTable])

/**
 * What a batch's jobs carry as a local property: the epochs of the routing-log entries in force.
 *
 * @param before the entry that `now` replaces at this very epoch, if it does
 */
private[sql] final case class RoutingHint(runId: String, epoch: Long, now: Long, before: Option[Long]) {
  def render: String = s"$runId:$epoch:$now:${before.getOrElse(-1L)}"
}

private[sql] object RoutingHint {
  def parse(text: String): Option[RoutingHint] = text.split(':') match {
    case Array(run, epoch, now, before) =>
      Some(RoutingHint(run, epoch.toLong, now.toLong, Some(before.toLong).filter(_ >= 0)))
    case _ => None
  }
}

private[binshift] object EpochRouting {
  /** Tables kept per run: those in force at this epoch and the last, and some for retried tasks. */
  private val MaxEntries = 16

  /** Runs kept per JVM; a run that is dropped while it is active is read again when it is needed. */
  private val MaxRuns = 64

  private val runs = new java.util.LinkedHashMap[String, EpochRouting](MaxRuns, 0.75f, true) {
    override def removeEldestEntry(e: java.util.Map.Entry[String, EpochRouting]): Boolean =
      size > MaxRuns
  }

  def forRun(runId: String, stateRoot: String, hadoopConf: Configuration): EpochRouting =
    runs.synchronized {
      runs.computeIfAbsent(runId, id => {
        val dir = ControlDir.ofStateRoot(stateRoot, hadoopConf)
        new EpochRouting(
          id, new RoutingLog(dir), CheckpointIds.read(dir.path.getParent, _, hadoopConf))
      })
    }
}
