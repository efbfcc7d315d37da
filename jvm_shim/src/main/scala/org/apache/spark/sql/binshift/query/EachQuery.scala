package org.apache.spark.sql.binshift.query

import java.util.UUID
import java.util.concurrent.{ConcurrentHashMap, ExecutionException, Future, TimeoutException, TimeUnit}

import scala.util.{Failure, Success, Try}

import org.apache.spark.internal.Logging
import org.apache.spark.sql.execution.streaming.runtime.StreamExecution
import org.apache.spark.util.ThreadUtils

/**
 * Asks all queries of a driver the same question. A query's answer may have to wait for its checkpoint, or for a lock that is
 * held while the checkpoint is read. So all queries are asked at the same time, and one that doesn't answer doesn't keep anybody
 * waiting for the others.
 *
 * A query that hasn't answered a question yet isn't asked the same question again; callers share the answer. So at most one
 * thread waits for it, however often a page is opened.
 *
 * May be called from any thread.
 */
private[binshift] object EachQuery extends Logging {
  /** The longest time for which somebody who looks at a page should have to wait. */
  val MaxWaitMs = 3000L
  private lazy val Threads = ThreadUtils.newDaemonCachedThreadPool("binshift-each-query", 64)
  private val asked = new ConcurrentHashMap[(UUID, String), Future[Any]]()

  /** The message about a query that doesn't answer. */
  def silence(query: StreamExecution, waitedMs: Long = MaxWaitMs): String =
    s"the checkpoint ${query.resolvedCheckpointRoot} has not answered for ${waitedMs / 1000} s"

  /**
   * @param question identifies the question, together with the run
   * @param of       answers the question; if it throws, the answer is a failure
   * @return the answers in the order of the queries; `None` for queries that don't answer in time
   */
  def ask[Q <: StreamExecution, T](queries: Seq[Q], question: String, maxWaitMs: Long)(
      of: Q => T): Seq[(Q, Option[Try[T]])] = {
    val until = System.nanoTime() + maxWaitMs * 1000000L
    val answers = queries.map(query => query -> begin(query, question)(of(query)))
    answers.map { case (query, answer) => query -> await(answer, until).map(_.asInstanceOf[Try[T]]) }
      .map { case (query, answer) =>
        if (answer.isEmpty) logWarning(s"query ${query.id} is not shown ($question): ${silence(query, maxWaitMs)}")
        query -> answer
      }
  }

  private def begin(query: StreamExecution, question: String)(answer: => Any): Future[Any] = {
    val key = (query.runId, question)
    asked.compute(key,
      (_, before) =>
        if (before != null && !before.isDone) before
        else Threads.submit(() =>
          try answer
          finally asked.remove(key)))
  }

  private def await(answer: Future[Any], until: Long): Option[Try[Any]] =
    try Some(Success(answer.get(math.max(1, until - System.nanoTime()), TimeUnit.NANOSECONDS)))
    catch {
      case _: TimeoutException => None
      case e: ExecutionException => Some(Failure(e.getCause))
    }
}
