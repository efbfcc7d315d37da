package org.apache.spark.sql.binshift.stock

import java.util.UUID
import java.util.concurrent.ConcurrentHashMap

import scala.util.Try
import scala.util.control.NonFatal

import org.apache.hadoop.fs.Path

import org.apache.spark.internal.Logging
import org.apache.spark.sql.binshift.internals.{CommittedEpoch, SparkInternals, StreamLogs}
import org.apache.spark.sql.binshift.internals.StreamLogs.Offsets
import org.apache.spark.sql.binshift.realtime.RealTimeMode
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.streaming.runtime.{MicroBatchExecution, StreamExecution}
import org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider
import org.apache.spark.sql.execution.streaming.state.binshift.BinshiftException
import org.apache.spark.sql.execution.streaming.state.binshift.checkpoint.RunHistory
import org.apache.spark.sql.internal.SQLConf

/**
 * Decides at which epoch a session with binshift's provider takes over a checkpoint of Spark's RocksDB provider.
 *
 * Spark keeps the provider that is in the offset log, whatever the session says, and the offset log stays the only source of truth.
 * An epoch runs in the form of the provider that it was logged with, and the first epoch that is logged with binshift's provider
 * takes the state over (see `PartitionTakeover`). Which epoch that is depends on how the last run ended.
 *
 *  - Its last epoch is committed. Then the next epoch is logged with binshift's provider. Spark copies the provider from the last
 *    entry, so we give the query a corrected copy of that entry, in memory.
 *  - Its last epoch isn't committed, and was logged with Spark's provider. Then it runs again in that provider's form, and the
 *    epoch after it is logged with binshift's.
 *  - Its last epoch isn't committed, and was logged with binshift's provider: an earlier run died while it took over. Then the
 *    epoch takes over again.
 */
private[binshift] object TakeoverEpochs extends Logging {
  private val runs = new ConcurrentHashMap[UUID, TakeoverEpoch]()
  private val StockProvider = classOf[RocksDBStateStoreProvider].getName

  /** The takeover that the run `runId` has to do, if any. */
  def of(runId: UUID): Option[TakeoverEpoch] = Option(runs.get(runId))

  /**
   * Looks at a query that is about to start. Called on the stream's thread, before Spark reads the offset log to find out where to
   * continue.
   *
   * @param latest the newest entry of the log of offsets
   *
   * Relies on Spark: the log keeps its last entries in memory, and the run reads the provider from there.
   */
  def observe(query: StreamExecution, latest: Option[(Long, Offsets)]): Unit = {
    val wanted = query.sparkSessionForStream.sessionState.conf.getConf(SQLConf.STATE_STORE_PROVIDER_CLASS)
    if (RealTimeMode.isOf(query)) observeRealTime(query, wanted)
    else for ((last, offsets) <- latest; logged <- SparkInternals.providerOf(offsets)) {
      val isCommitted = CommittedEpoch.of(query) >= last
      if (logged == StockProvider && SparkInternals.isBinshiftProvider(wanted)) {
        if (!isPlacedByKey(offsets)) {
          logWarning(s"query ${query.id} continues with Spark's provider: $reasonNotPlacedByKey")
        } else if (isCommitted && SparkInternals.keepsLogs(query)) {
          goOnWith(query, last, offsets, wanted)
        } else {
          // The next entry copies the provider of this one.
          takeOver(query, if (isCommitted) last + 2 else last + 1, wanted, isLoggedByThisRun = true)
        }
      } else if (SparkInternals.isBinshiftProvider(logged) && !isCommitted && last > 0 &&
        query.offsetLog.get(last - 1).flatMap(SparkInternals.providerOf).contains(StockProvider)) {
        takeOver(query, last, logged, isLoggedByThisRun = false)
      }
    }
  }

  /** In real-time mode, a run continues from the last committed epoch, whatever else was logged. */
  private def observeRealTime(query: StreamExecution, wanted: String): Unit = {
    val last = CommittedEpoch.of(query)
    for (offsets <- Option.when(last >= 0)(last).flatMap(query.offsetLog.get(_))
      if SparkInternals.providerOf(offsets).contains(StockProvider) && SparkInternals.isBinshiftProvider(wanted)) {
      if (isPlacedByKey(offsets) && SparkInternals.keepsLogs(query)) goOnWith(query, last, offsets, wanted)
      else {
        val reason = if (SparkInternals.keepsLogs(query)) reasonNotPlacedByKey
        else
          s"in real-time mode that needs ${SQLConf.STREAMING_METADATA_CACHE_ENABLED.key}=true"
        logWarning(s"query ${query.id} continues with Spark's provider: $reason")
      }
    }
  }

  /** Makes the epoch after `last` begin with binshift's provider. */
  private def goOnWith(query: StreamExecution, last: Long, offsets: Offsets, provider: String): Unit = {
    SparkInternals.goOnWith(query, last, offsets, SQLConf.STATE_STORE_PROVIDER_CLASS.key -> provider)
    takeOver(query, last + 1, provider, isLoggedByThisRun = true)
  }

  private def takeOver(query: StreamExecution, epoch: Long, provider: String, isLoggedByThisRun: Boolean): Unit =
    runs.put(query.runId, TakeoverEpoch(epoch, provider, isLoggedByThisRun))

  /**
   * Runs `plan`, which plans `epoch`. If the epoch takes the state over and is refused, it is removed from the log of offsets again,
   * so that Spark's own provider can continue with the checkpoint. Nothing was written in another form by then, because the tasks
   * of an epoch run after it is planned.
   *
   * Relies on Spark: an epoch that is in no log is built again from what its sources have.
   */
  def begin[T](query: MicroBatchExecution, epoch: Long)(plan: => T): T = {
    val planned =
      try plan
      catch {
        case NonFatal(refusal) =>
          for (at <- of(query.runId) if at.epoch == epoch && !at.isPlanned)
            try takeBack(query, at)
            catch { case NonFatal(e) => refusal.addSuppressed(e) }
          throw refusal
      }
    runs.computeIfPresent(query.runId, (_, at) => at.copy(isPlanned = at.isPlanned || at.epoch == epoch))
    planned
  }

  /**
   * Fails unless the log of offsets has the epoch of the takeover as this run knows it, to be run with binshift's provider. A run
   * checks that after it has claimed its place: another run whose takeover is refused looks for claims before and after it removes
   * the epoch. It must also check before its tasks run, because another run may have logged the epoch again.
   */
  def requireLogged(query: MicroBatchExecution, epoch: Long): Unit =
    if (of(query.runId).exists(_.epoch == epoch) && !RealTimeMode.isOf(query)) {
      val logged = onDisk(query).get(epoch)
      if (!logged.exists(isAsKnown(query, epoch, _)))
        throw otherRun(query, epoch,
          s"has ${logged.fold(s"offsets/$epoch no more")(o =>
              s"another offsets/$epoch (of ${SparkInternals.providerOf(o).getOrElse("no provider")})")}")
    }

  private def otherRun(query: MicroBatchExecution, epoch: Long, why: String): BinshiftException = {
    val root = query.resolvedCheckpointRoot
    BinshiftException("ANOTHER_RUN", "checkpoint" -> root).configuration(
      s"query ${query.id} was to take over the state at epoch $epoch, but $root $why: another run of the query is under way; " +
        "stop it, and start the query again")
  }

  /** The log of offsets as it is on disk, without the entries that this run has in memory. */
  private def onDisk(query: MicroBatchExecution) =
    StreamLogs.offsets(query.sparkSession, new Path(query.resolvedCheckpointRoot), readOnly = true)

  /** True if the logged entry is for binshift's provider, and wasn't logged again since this run has logged or read it. */
  private def isAsKnown(query: MicroBatchExecution, epoch: Long, logged: Offsets): Boolean =
    SparkInternals.providerOf(logged).exists(SparkInternals.isBinshiftProvider) &&
      query.offsetLog.get(epoch).exists(SparkInternals.loggedAtMs(_) == SparkInternals.loggedAtMs(logged))

  /** Removes the epoch, unless a run may have begun it that had logged it earlier or is alive. */
  private def takeBack(query: MicroBatchExecution, at: TakeoverEpoch): Unit = {
    val epoch = at.epoch
    val isOwn = at.isLoggedByThisRun && !SparkInternals.isOfAnother(query, epoch)
    lazy val log = onDisk(query)
    val isNewest = !RealTimeMode.isOf(query) && log.getLatestBatchId().contains(epoch) &&
      query.commitLog.getLatestBatchId().forall(_ < epoch)
    for (offsets <- Option.when(isNewest)(epoch).flatMap(log.get(_))
      if isAsKnown(query, epoch, offsets) && !mayBeBegun(query, epoch, offsets, isOwn)) {
      SparkInternals.unlog(query, epoch)
      // Another run may have seen it and begun with it meanwhile.
      if (mayBeBegun(query, epoch, offsets, isOwn)) query.offsetLog.add(epoch, offsets)
      else logInfo(s"query ${query.id}: epoch $epoch is not run, so the checkpoint stays one of Spark's own provider")
    }
    // This run has planned nothing. Its claim would disown what the other runs make of the epoch.
    RunHistory.withdraw(SparkInternals.controlDir(query), query.runId.toString)
  }

  /**
   * True if another run may already be running tasks of `epoch`, as it is logged in `offsets`. A run that begins with the epoch
   * claims its place before, and a run that began with an earlier epoch has logged its own name.
   *
   * @param isOwn whether this run has logged the epoch. If so, another run would have had to begin between that and the refusal.
   *              This decides if the claims can't be read.
   */
  private def mayBeBegun(query: MicroBatchExecution, epoch: Long, offsets: Offsets, isOwn: Boolean): Boolean = {
    val run = query.runId.toString
    val loggedAt = SparkInternals.loggedAtMs(offsets)
    SparkInternals.loggedConf(offsets, RunHistory.Key).exists(_ != run) ||
    Try(RunHistory.read(SparkInternals.controlDir(query)).runs.toList).fold(_ => !isOwn,
      _.exists { other =>
        other.runId != run && other.epoch == epoch && other.loggedAtMs.forall(loggedAt.contains)
      })
  }

  def forget(runId: UUID): Unit = runs.remove(runId)

  /** Why a checkpoint of `provider` isn't taken over, although its session names binshift's provider. */
  def reasonAgainst(provider: String): String =
    if (provider == StockProvider) reasonNotPlacedByKey
    else "its state can be converted while the query is stopped: binshift convert CHECKPOINT --to binshift"

  /** Makes the rest of the run use binshift's provider, and log it. */
  def switchProvider(at: TakeoverEpoch, query: MicroBatchExecution, session: SparkSession): Unit = {
    val provider = SQLConf.STATE_STORE_PROVIDER_CLASS.key -> at.provider
    StreamLogs.setNextConf(query, provider)
    session.conf.set(provider._1, provider._2)
    logInfo(s"query ${query.id}: the state of Spark's RocksDB provider is taken over at epoch ${at.epoch}")
  }

  /**
   * True if each key is in the partition given by the hash of all of its columns. In checkpoints that older versions of Spark
   * started, rows may have been distributed by only some of the columns.
   */
  def isPlacedByKey(offsets: Offsets): Boolean =
    SparkInternals.loggedConf(offsets, SQLConf.STATEFUL_OPERATOR_USE_STRICT_DISTRIBUTION.key).contains("true")

  val reasonNotPlacedByKey = "the checkpoint may have keys that were placed by some of their columns only " +
    s"(it has no ${SQLConf.STATEFUL_OPERATOR_USE_STRICT_DISTRIBUTION.key}=true)"
}

/**
 * @param epoch    the first binned epoch
 * @param provider the class that the session names
 * @param isLoggedByThisRun whether no earlier run has logged the epoch
 * @param isPlanned whether this run has planned the epoch, so that its tasks may have begun
 */
private[binshift] final case class TakeoverEpoch(
    epoch: Long, provider: String, isLoggedByThisRun: Boolean, isPlanned: Boolean = false)
