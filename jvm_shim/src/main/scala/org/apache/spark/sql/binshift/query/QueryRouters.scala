package org.apache.spark.sql.binshift.query

import java.util.UUID

import org.apache.spark.sql.binshift.internals.OncePerRun
import org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution

/** The routers of this driver, one per run; those of runs that ended go when the next one is made. */
private[binshift] object QueryRouters {
  private val routers = new OncePerRun[QueryRouter]

  def of(query: MicroBatchExecution): QueryRouter = routers.known(query.runId).getOrElse {
    val (before, others) = routers.all.filterNot(_.query.isActive).partition(_.query.id == query.id)
    // A plan that the last run has accepted is to be found by this one.
    before.foreach(_.close())
    before.foreach(_.awaitDeletes())
    before.foreach(remove)
    others.foreach(EndingRuns.close)
    val router = routers.of(query.runId)(new QueryRouter(query))
    // Of a run that ended before somebody asked, nobody tells any more.
    if (!query.isActive) router.close()
    router
  }

  /** After it was closed: until then, the next run of its query is to find it. */
  def remove(router: QueryRouter): Unit = routers.remove(router.query.runId)

  /** Those of the other queries of this driver that run. */
  def activeBut(router: QueryRouter): Seq[QueryRouter] =
    routers.all.filter(r => (r ne router) && r.query.isActive)

  /** The router of a run, also of one that has ended since the last one was made. */
  def known(runId: UUID): Option[QueryRouter] = routers.known(runId)

  def close(runId: UUID): Unit = routers.known(runId).foreach(_.close())
}
