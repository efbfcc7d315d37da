package org.apache.spark.sql.binshift.query

import java.util.UUID
import java.util.concurrent.{ConcurrentHashMap, Future}

import scala.util.control.NonFatal

import org.apache.spark.internal.Logging
import org.apache.spark.sql.binshift.statistics.QueryStatistics
import org.apache.spark.util.ThreadUtils

/**
 * What is written to a checkpoint at the end of a run, on threads of its own: a file system that does not answer holds up
 * the query whose checkpoint is there, and no other.
 *
 * Thread-safe.
 */
private[binshift] object EndingRuns extends Logging {
  private val closing = ConcurrentHashMap.newKeySet[QueryRouter]()
  private lazy val Threads = ThreadUtils.newDaemonCachedThreadPool("binshift-ending-runs", 16)

  /** Has the end of a run written, which may have been written before. */
  def end(runId: UUID): Future[_] = submit(runId) {
    QueryRouters.close(runId)
    QueryStatistics.close(runId)
  }

  /** Closes a router of which nobody heard that its query has ended, and forgets it. */
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
      try body
      catch {
        case NonFatal(e) => logWarning(s"the end of run $runId was not written; the next one has more to look for", e)
      }
    Threads.submit(ends)
  }
}
