package org.apache.spark.sql.binshift.query

import java.util.UUID

import org.apache.spark.sql.binshift.internals.OncePerRun
import org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution

/** The routers of this driver, one per run. Those of ended runs are removed when the next one is made. */
private[binshift] object QueryRouters {
  private val routers = new OncePerRun[QueryRouter]

  def of(query: MicroBatchExecution): QueryRouter = routers.known(query.runId).getOrElse {
    val (before, others) = routers.all.filterNot(_.query.isActive).partition(_.query.id == query.id)
    // Closed first, so that this run finds a plan that the last run has accepted.
    before.foreach(_.close())
    before.foreach(_.awaitDeletes())
    before.foreach(remove)
    others.foreach(EndingRuns.close)
    val router = routers.of(query.runId)(new QueryRouter(query))
    // If the run ended before this, nobody will tell the router.
    if (!query.isActive) router.close()
    router
  }

  /** Removes a router after it was closed. Until then, the next run of its query has to find it. */
  def remove(router: QueryRouter): Unit = routers.remove(router.query.runId)

  /** The routers of the other running queries of this driver. */
  def activeBut(router: QueryRouter): Seq[QueryRouter] =
    routers.all.filter(r => (r ne router) && r.query.isActive)

  /** The router of a run, which may have ended since the last router was made. */
  def known(runId: UUID): Option[QueryRouter] = routers.known(runId)

  def close(runId: UUID): Unit = routers.known(runId).foreach(_.close())
}
