package org.apache.spark.sql.binshift

import java.util.UUID
import java.util.concurrent.ConcurrentHashMap

import org.apache.spark.internal.Logging
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.streaming.checkpointing.OffsetSeqBase
import org.apache.spark.sql.execution.streaming.operators.stateful.StateStoreWriter
import org.apache.spark.sql.execution.streaming.runtime.{MicroBatchExecution, StreamExecution}
import org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider
import org.apache.spark.sql.execution.streaming.state.binshift.{BinshiftException, Layout, Storage}
import org.apache.spark.sql.internal.SQLConf

/**
 * Checkpoints of Spark's RocksDB provider that a session with binshift's provider goes on with.
 *
 * Spark keeps the provider that is in the offset log, whatever the session says. The offset log stays
 * the truth: an epoch runs in the form of the provider that it was logged with, and the first epoch
 * that is logged with binshift's provider takes the state over (see `TakeOver`). Which epoch that is
 * depends on how the last run ended.
 *
 *  - Its last epoch is committed. The next one is logged with binshift's provider, since Spark copies
 *    the provider from the last entry, of which the query is given a corrected copy, in memory.
 *  - Its last epoch is not committed. It was logged with Spark's provider, so it runs again in that
 *    provider's form, and the epoch after it is logged with binshift's.
 *  - It is not committed and was logged with binshift's provider: an earlier run died while it took
 *    over. The epoch takes over again.
 */
private[binshift] object TakeOvers extends Logging {
  private val runs = new ConcurrentHashMap[UUID, TakeOverAt]()
  private val StockProvider = classOf[RocksDBStateStoreProvider].getName

  /** The takeover that the run `runId` is to do, if any. */
  def of(runId: UUID): Option[TakeOverAt] = Option(runs.get(runId))

  /**
   * Looks at a query that is about to start. Called on the stream's thread, before the offset log is
   * read to find where to go on.
   *
   * Relies on Spark: the log keeps its last entries in memory, and the run reads the provider from there.
   */
  def observe(query: StreamExecution): Unit = {
    val wanted = query.sparkSession.sessionState.conf.getConf(SQLConf.STATE_STORE_PROVIDER_CLASS)
    val log = query.offsetLog
    if (SparkInternals.isBinshiftProvider(wanted)) log.getLatest().foreach { case (last, offsets) =>
      val isCommitted = query.commitLog.getLatestBatchId().exists(_ >= last)
      providerOf(offsets) match {
        case Some(StockProvider) if isCommitted && isCached(query) =>
          log.batchCache.put(last, SparkInternals.withConf(offsets, SQLConf.STATE_STORE_PROVIDER_CLASS.key -> wanted))
          runs.put(query.runId, TakeOverAt(last + 1, wanted))
        case Some(StockProvider) =>
          // The next entry is a copy of this one, or is logged with the provider of this one.
          runs.put(query.runId, TakeOverAt(if (isCommitted) last + 2 else last + 1, wanted))
        case Some(p) if !isCommitted && last > 0 && SparkInternals.isBinshiftProvider(p) &&
            log.get(last - 1).flatMap(providerOf).contains(StockProvider) =>
          runs.put(query.runId, TakeOverAt(last, wanted))
        case _ =>
      }
    }
  }

  def forget(runId: UUID): Unit = runs.remove(runId)

  /** The layout with which `epoch`, the first of the run, goes on; refuses what cannot be taken over. */
  def layoutFor(
      at: TakeOverAt, epoch: Long, n: Int, session: SparkSession, operators: Seq[StateStoreWriter]): Layout = {
    val layout = new BinsSetting(session).layoutOf(operators, n).copy(takenOverAt = Some(at.epoch))
    val isStrict = session.sessionState.conf.getConf(SQLConf.STATEFUL_OPERATOR_USE_STRICT_DISTRIBUTION)
    layout.operators.values.find(_.storage == Storage.Binned).filterNot(_ => isStrict).foreach { o =>
      throw BinshiftException.unsupportedOperator(
        s"the checkpoint was started by a version of Spark that may have placed the keys of operator ${o.name} " +
          "by some of their columns only, so it cannot be taken over; go on with Spark's own provider " +
          s"($StockProvider)")
    }
    logInfo(s"the state of Spark's RocksDB provider is taken over at epoch ${at.epoch}; this is epoch $epoch")
    layout
  }

  /** Has the rest of the run log binshift's provider, and use it. */
  def switchProvider(at: TakeOverAt, query: MicroBatchExecution, session: SparkSession): Unit = {
    val provider = SQLConf.STATE_STORE_PROVIDER_CLASS.key -> at.provider
    SparkInternals.setNextConf(query, provider)
    session.conf.set(provider._1, provider._2)
  }

  private def isCached(query: StreamExecution): Boolean =
    query.sparkSession.sessionState.conf.getConf(SQLConf.STREAMING_METADATA_CACHE_ENABLED)

  private def providerOf(offsets: OffsetSeqBase): Option[String] =
    offsets.metadataOpt.flatMap(_.conf.get(SQLConf.STATE_STORE_PROVIDER_CLASS.key))
}

/**
 * @param epoch    the first epoch that is binned
 * @param provider the class that the session names
 */
private[binshift] final case class TakeOverAt(epoch: Long, provider: String)
