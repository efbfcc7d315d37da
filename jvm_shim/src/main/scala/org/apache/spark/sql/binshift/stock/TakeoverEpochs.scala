package org.apache.spark.sql.binshift.stock

import java.util.UUID
import java.util.concurrent.ConcurrentHashMap

import org.apache.spark.internal.Logging
import org.apache.spark.sql.binshift.internals.{CommittedEpoch, SparkInternals, StreamLogs}
import org.apache.spark.sql.binshift.internals.StreamLogs.Offsets
import org.apache.spark.sql.binshift.realtime.RealTimeMode
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.streaming.runtime.{MicroBatchExecution, StreamExecution}
import org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider
import org.apache.spark.sql.internal.SQLConf

/**
 * Checkpoints of Spark's RocksDB provider that a session with binshift's provider goes on with.
 *
 * Spark keeps the provider that is in the offset log, whatever the session says. The offset log stays
 * the truth: an epoch runs in the form of the provider that it was logged with, and the first epoch
 * that is logged with binshift's provider takes the state over (see `PartitionTakeover`). Which epoch that is
 * depends on how the last run ended.
 *
 *  - Its last epoch is committed. The next one is logged with binshift's provider, since Spark copies
 *    the provider from the last entry, of which the query is given a corrected copy, in memory.
 *  - Its last epoch is not committed. It was logged with Spark's provider, so it runs again in that
 *    provider's form, and the epoch after it is logged with binshift's.
 *  - It is not committed and was logged with binshift's provider: an earlier run died while it took
 *    over. The epoch takes over again.
 */
private[binshift] object TakeoverEpochs extends Logging {
  private val runs = new ConcurrentHashMap[UUID, TakeoverEpoch]()
  private val StockProvider = classOf[RocksDBStateStoreProvider].getName

  /** The takeover that the run `runId` is to do, if any. */
  def of(runId: UUID): Option[TakeoverEpoch] = Option(runs.get(runId))

  /**
   * Looks at a query that is about to start. Called on the stream's thread, before the offset log is
   * read to find where to go on.
   *
   * @param latest the newest entry of the log of offsets
   *
   * Relies on Spark: the log keeps its last entries in memory, and the run reads the provider from there.
   */
  def observe(query: StreamExecution, latest: Option[(Long, Offsets)]): Unit = {
    val wanted = query.sparkSessionForStream.sessionState.conf.getConf(SQLConf.STATE_STORE_PROVIDER_CLASS)
    if (RealTimeMode.isOf(query)) observeRealTime(query, wanted)
    else for ((last, offsets) <- latest; logged <- providerOf(offsets)) {
      val isCommitted = CommittedEpoch.of(query) >= last
      if (logged == StockProvider && SparkInternals.isBinshiftProvider(wanted)) {
        if (!isPlacedByKey(offsets)) {
          logWarning(s"query ${query.id} goes on with Spark's provider: $reasonNotPlacedByKey")
        } else if (isCommitted && SparkInternals.keepsLogs(query)) {
          goOnWith(query, last, offsets, wanted)
        } else {
          // The next entry is a copy of this one, or is logged with the provider of this one.
          takeOver(query, if (isCommitted) last + 2 else last + 1, wanted)
        }
      } else if (SparkInternals.isBinshiftProvider(logged) && !isCommitted && last > 0 &&
        query.offsetLog.get(last - 1).flatMap(providerOf).contains(StockProvider)) {
        takeOver(query, last, logged)
      }
    }
  }

  /** In real-time mode a run goes on from the last committed epoch, whatever else was logged. */
  private def observeRealTime(query: StreamExecution, wanted: String): Unit = {
    val last = CommittedEpoch.of(query)
    for (offsets <- Option.when(last >= 0)(last).flatMap(query.offsetLog.get(_))
      if providerOf(offsets).contains(StockProvider) && SparkInternals.isBinshiftProvider(wanted)) {
      if (isPlacedByKey(offsets) && SparkInternals.keepsLogs(query)) goOnWith(query, last, offsets, wanted)
      else {
        val reason = if (SparkInternals.keepsLogs(query)) reasonNotPlacedByKey
        else
          s"in real-time mode that needs ${SQLConf.STREAMING_METADATA_CACHE_ENABLED.key}=true"
        logWarning(s"query ${query.id} goes on with Spark's provider: $reason")
      }
    }
  }

  /** Has the epoch after `last` begin with binshift's provider. */
  private def goOnWith(query: StreamExecution, last: Long, offsets: Offsets, provider: String): Unit = {
    SparkInternals.goOnWith(query, last, offsets, SQLConf.STATE_STORE_PROVIDER_CLASS.key -> provider)
    takeOver(query, last + 1, provider)
  }

  private def takeOver(query: StreamExecution, epoch: Long, provider: String): Unit =
    runs.put(query.runId, TakeoverEpoch(epoch, provider))

  def forget(runId: UUID): Unit = runs.remove(runId)

  /** Why a checkpoint of `provider` is not taken over, though its session names binshift's. */
  def reasonAgainst(provider: String): String =
    if (provider == StockProvider) reasonNotPlacedByKey
    else "its state can be converted while the query is stopped: binshift convert CHECKPOINT --to binshift"

  /** Has the rest of the run log binshift's provider, and use it. */
  def switchProvider(at: TakeoverEpoch, query: MicroBatchExecution, session: SparkSession): Unit = {
    val provider = SQLConf.STATE_STORE_PROVIDER_CLASS.key -> at.provider
    StreamLogs.setNextConf(query, provider)
    session.conf.set(provider._1, provider._2)
    logInfo(s"query ${query.id}: the state of Spark's RocksDB provider is taken over at epoch ${at.epoch}")
  }

  /**
   * Whether keys are in the partition of the hash of all of their columns. In checkpoints that older
   * versions of Spark started, rows may have been distributed by some of the columns only.
   */
  private def isPlacedByKey(offsets: Offsets): Boolean =
    SparkInternals.loggedConf(offsets, SQLConf.STATEFUL_OPERATOR_USE_STRICT_DISTRIBUTION.key).contains("true")

  private val reasonNotPlacedByKey = "the checkpoint may have keys that were placed by some of their columns only " +
    s"(it has no ${SQLConf.STATEFUL_OPERATOR_USE_STRICT_DISTRIBUTION.key}=true)"

  private def providerOf(offsets: Offsets): Option[String] =
    SparkInternals.loggedConf(offsets, SQLConf.STATE_STORE_PROVIDER_CLASS.key)
}

/**
 * @param epoch    the first epoch that is binned
 * @param provider the class that the session names
 */
private[binshift] final case class TakeoverEpoch(epoch: Long, provider: String)
