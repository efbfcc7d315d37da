package org.apache.spark.sql.binshift.query

import java.util.UUID
import java.util.concurrent.{ConcurrentHashMap, Future}

import org.apache.spark.sql.binshift.statistics.QueryStatistics
import org.apache.spark.sql.execution.streaming.state.binshift.OrWarn
import org.apache.spark.util.ThreadUtils

/**
 * Writes to checkpoints at the end of runs, on threads of its own. So a file system that doesn't answer only delays the query with its
 * checkpoint there.
 *
 * Thread-safe.
 */
private[binshift] object EndingRuns extends OrWarn {
  private val closing = ConcurrentHashMap.newKeySet[QueryRouter]()
  private lazy val Threads = ThreadUtils.newDaemonCachedThreadPool("binshift-ending-runs", 16)

  /** Writes the end of a run, which may have been written before. */
  def end(runId: UUID): Future[_] = submit(runId) {
    QueryRouters.close(runId)
    QueryStatistics.close(runId)
  }

  /** Closes and forgets a router that nobody told about the end of its query. */
  def close(router: QueryRouter): Unit = if (closing.add(router)) {
    submit(router.query.runId) {
      try {
        router.close()
        router.awaitDeletes()
      } finally {
        QueryRouters.remove(router)
        closing.remove(router)
      }
    }
  }

  private def submit(runId: UUID)(body: => Unit): Future[_] = {
    val ends: Runnable = () =>
      orWarn(
        s"the end of run $runId could not be recorded; the next start takes longer, because it searches for state of lost epochs")(
        body)
    Threads.submit(ends)
  }
}
