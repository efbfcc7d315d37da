package org.apache.spark.sql.binshift.client

import org.apache.spark.sql.binshift.internals.{QueryFailure, SparkInternals}
import org.apache.spark.sql.binshift.query.QueryStarts
import org.apache.spark.sql.binshift.realtime.RealTimeMode
import org.apache.spark.sql.binshift.stock.TakeoverEpochs
import org.apache.spark.sql.execution.streaming.runtime.{MicroBatchExecution, StreamExecution, StreamingQueryWrapper}
import org.apache.spark.sql.execution.streaming.state.binshift.BinshiftException
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.streaming.StreamingQuery

/** Finds out whether a query can be rescaled. May be called from any thread; lists the log of offsets. */
private[binshift] object AttachedQuery {

  /** The execution of a running query that uses binshift; throws for any other. */
  def of(query: StreamingQuery): MicroBatchExecution = {
    SparkInternals.requireSupportedVersion()
    execution(query) match {
      case m: MicroBatchExecution =>
        if (!m.isActive) throw QueryFailure.ended(m)
        requireBinshift(m)
        m
      case other => throw BinshiftException("NOT_A_MICROBATCH_QUERY").configuration(
          s"query ${other.id} runs with trigger ${other.trigger}; only micro-batch queries can be rescaled")
    }
  }

  private def execution(query: StreamingQuery): StreamExecution = query match {
    case w: StreamingQueryWrapper => w.streamingQuery
    case e: StreamExecution => e
    case other => throw BinshiftException("NOT_A_MICROBATCH_QUERY").configuration(
        s"${other.getClass.getName} is no query of this Spark session")
  }

  private def requireBinshift(query: MicroBatchExecution): Unit = {
    val wanted = query.sparkSession.sessionState.conf.getConf(SQLConf.STATE_STORE_PROVIDER_CLASS)
    val logged = SparkInternals.lastLogged(query).flatMap(_.providerClass)
    // In real-time mode, a query gets its provider when it starts, and its first epoch is only logged when that epoch ends.
    val used = logged.getOrElse(
      query.sparkSessionForStream.sessionState.conf.getConf(SQLConf.STATE_STORE_PROVIDER_CLASS))
    if (!SparkInternals.isBinshiftProvider(used) && TakeoverEpochs.of(query.runId).isEmpty) {
      val reason = if (SparkInternals.isBinshiftProvider(wanted)) {
        s"the checkpoint ${query.resolvedCheckpointRoot} was started with provider $used, and Spark keeps a " +
          s"checkpoint's provider whatever the session says; ${TakeoverEpochs.reasonAgainst(used)}"
      } else {
        val arguments = if (RealTimeMode.isOf(query)) "builder, real_time=True" else "builder"
        s"query ${query.id} uses provider $used; start it in a session made with binshift.configure($arguments)"
      }
      throw BinshiftException("PROVIDER_NOT_BINSHIFT", "provider" -> used).configuration(reason)
    }
    // Relies on Spark: `start` returns once the listeners have heard of the query.
    if (!QueryStarts.isSeen(query.runId)) throw QueryStarts.unseen(query)
  }
}
