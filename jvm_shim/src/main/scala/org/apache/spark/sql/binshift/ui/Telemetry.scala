package org.apache.spark.sql.binshift.ui

import java.util.UUID
import java.util.concurrent.ConcurrentHashMap

import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal

import org.apache.spark.internal.Logging
import org.apache.spark.SparkEnv
import org.apache.spark.sql.binshift.query.QueryRouters
import org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution
import org.apache.spark.sql.execution.streaming.state.binshift.provider.BinMetrics
import org.apache.spark.sql.streaming.StreamingQueryProgress

/** What a driver shows of its routed queries: metrics in Spark's metrics system, a tab in its UI. */
private[binshift] object Telemetry extends Logging {
  private val shown = new ConcurrentHashMap[UUID, ShownQuery]()

  /** Called with each epoch of a routed query; does something with the first of a run only. */
  def show(query: MicroBatchExecution): Unit = if (!shown.containsKey(query.runId)) {
    // The query's last run gives its name free, should the news of its end still be on their way.
    queries.filter(q => !q.isActive && (q.id == query.id || !hasFailedAudit(q.runId))).foreach(q => remove(q.runId))
    val metrics = new QueryMetrics(query, freeName(query))
    shown.put(query.runId, new ShownQuery(query, metrics))
    try {
      SparkEnv.get.metricsSystem.registerSource(metrics)
      BinsTab.attach(query.sparkSession.sparkContext)
    } catch {
      case NonFatal(e) => logWarning(s"query ${query.id} runs without its metrics or its tab in Spark's UI", e)
    }
  }

  /** The routed queries that run, and those that ended for an audit. */
  def queries: Seq[MicroBatchExecution] = shown.values.asScala.map(_.query).toSeq.sortBy(_.id)

  def progressed(progress: StreamingQueryProgress): Unit = Option(shown.get(progress.runId)).foreach { q =>
    def total(name: String): Long =
      progress.stateOperators.flatMap(o => Option(o.customMetrics.get(name))).map(_.longValue).sum
    q.metrics.adopted(total(BinMetrics.AdoptedName), total(BinMetrics.BytesAdoptedName))
  }

  /** Called when a query has ended. If it ended for an audit, monitoring is to see that until its next run begins. */
  def close(runId: UUID): Unit = if (!hasFailedAudit(runId)) remove(runId)

  private def hasFailedAudit(runId: UUID): Boolean = QueryRouters.known(runId).exists(_.auditFailure.isDefined)

  private def remove(runId: UUID): Unit =
    Option(shown.remove(runId)).foreach(q => SparkEnv.get.metricsSystem.removeSource(q.metrics))

  /** Names are unique in a session only. */
  private def freeName(query: MicroBatchExecution): String =
    Option(query.name).map(name => s"binshift.$name")
      .filter(SparkEnv.get.metricsSystem.getSourcesByName(_).isEmpty).getOrElse(s"binshift.${query.id}")
}

private final class ShownQuery(val query: MicroBatchExecution, val metrics: QueryMetrics)
