package org.apache.spark.sql.binshift.query

import java.util.UUID
import java.util.concurrent.{ConcurrentHashMap, ExecutionException, Future, TimeoutException, TimeUnit}

import scala.util.{Failure, Success, Try}

import org.apache.spark.internal.Logging
import org.apache.spark.sql.execution.streaming.runtime.StreamExecution
import org.apache.spark.util.ThreadUtils

/**
 * Asks all queries of a driver for what is shown of them. What a query has to say may wait for its checkpoint, or for a lock that is
 * held while the checkpoint is asked. So they are asked at the same time, and one that does not answer keeps nobody waiting for
 * the others.
 *
 * A query that is asked for something while it has not answered the same question is not asked again: at most one thread waits for
 * it, however often a page is opened. Whoever asks meanwhile shares the answer.
 *
 * Any thread.
 */
private[binshift] object EachQuery extends Logging {
  /** What somebody who looks at a page still waits for. */
  val MaxWaitMs = 3000L
  private lazy val Threads = ThreadUtils.newDaemonCachedThreadPool("binshift-each-query", 64)
  private val asked = new ConcurrentHashMap[(UUID, String), Future[Any]]()

  /** What is said of a query that does not answer. */
  def silence(query: StreamExecution, waitedMs: Long = MaxWaitMs): String =
    s"the checkpoint ${query.resolvedCheckpointRoot} has not answered for ${waitedMs / 1000} s"

  /**
   * @param question what `of` answers; with the run, it says what is the same
   * @return in the order of the queries; `None` for those that do not answer in time. What `of` throws is a failure.
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
