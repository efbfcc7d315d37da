package org.apache.spark.sql.binshift.ui

import java.util.UUID
import java.util.concurrent.ConcurrentHashMap

import scala.jdk.CollectionConverters._

import org.apache.spark.SparkEnv
import org.apache.spark.sql.binshift.query.QueryRouters
import org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution
import org.apache.spark.sql.execution.streaming.state.binshift.OrWarn
import org.apache.spark.sql.execution.streaming.state.binshift.provider.BinMetrics
import org.apache.spark.sql.streaming.StreamingQueryProgress

/** Shows the routed queries of a driver: as metrics in Spark's metrics system, and in a tab of its UI. */
private[binshift] object Telemetry extends OrWarn {
  private val shown = new ConcurrentHashMap[UUID, ShownQuery]()

  /** Called with each epoch of a routed query. Only the first call of a run does something. */
  def show(query: MicroBatchExecution): Unit = if (!shown.containsKey(query.runId)) {
    // The query's last run gives up its name, in case we haven't heard of its end yet.
    all.map(_.query).filter(q => !q.isActive && (q.id == query.id || !hasFailedAudit(q.runId))).foreach(q => remove(q.runId))
    val one = new ShownQuery(query, freeName(query))
    shown.put(query.runId, one)
    orWarn(s"query ${query.id} runs without its metrics or its tab in Spark's UI") {
      SparkEnv.get.metricsSystem.registerSource(one.metrics)
      BinsTab.attach(query.sparkSession.sparkContext)
    }
  }

  /** The routed queries that run, and those that an audit has ended. */
  def all: Seq[ShownQuery] = shown.values.asScala.toSeq.sortBy(_.query.id)

  def progressed(progress: StreamingQueryProgress): Unit = Option(shown.get(progress.runId)).foreach { q =>
    q.metrics.adopted(total(progress, BinMetrics.AdoptedName), total(progress, BinMetrics.BytesAdoptedName))
  }

  /** The sum of a metric over all operators of an epoch. */
  def total(progress: StreamingQueryProgress, name: String): Long =
    progress.stateOperators.flatMap(o => Option(o.customMetrics.get(name))).map(_.longValue).sum

  /** Called when a query has ended. If an audit has ended it, monitoring shows that until the query's next run begins. */
  def close(runId: UUID): Unit = if (!hasFailedAudit(runId)) remove(runId)

  private def hasFailedAudit(runId: UUID): Boolean = QueryRouters.known(runId).exists(_.audits.failure.isDefined)

  private def remove(runId: UUID): Unit =
    Option(shown.remove(runId)).foreach(q => SparkEnv.get.metricsSystem.removeSource(q.metrics))

  /** A free name, because the names of queries are only unique within a session. */
  private def freeName(query: MicroBatchExecution): String =
    Option(query.name).map(name => s"binshift.$name")
      .filter(SparkEnv.get.metricsSystem.getSourcesByName(_).isEmpty).getOrElse(s"binshift.${query.id}")
}

/** A query that runs, with its metrics and its view. */
private[ui] final class ShownQuery(val query: MicroBatchExecution, name: String) {
  val view: Latest[QueryView] = new Latest(QueryView.Unknown)(_ => QueryView.of(query))
  val metrics: QueryMetrics = new QueryMetrics(view, name)

  /** The latest steps. The routing log is read again only if there is another step. */
  val history: Latest[StepHistory] = new Latest(StepHistory(None, Nil))(_.of(query))
}
