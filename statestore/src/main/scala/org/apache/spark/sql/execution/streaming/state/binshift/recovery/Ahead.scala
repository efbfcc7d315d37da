package org.apache.spark.sql.execution.streaming.state.binshift.recovery

import java.util.concurrent.{CancellationException, CompletableFuture, ExecutionException, Executor, ThreadPoolExecutor}

import scala.collection.mutable

import org.apache.spark.util.ThreadUtils

/**
 * Runs jobs on other threads, a few ahead of whoever takes their results in their order.
 *
 * Used by one thread.
 *
 * @param release gets results that nobody took
 */
private[binshift] final class Ahead[T](jobs: Iterator[() => T], release: T => Unit) extends AutoCloseable {
  import Ahead._

  // A job that recovers another partition would wait for threads that may all wait like it.
  private val executor: Executor = if (isOwnThread) (job: Runnable) => job.run() else threads
  private val running = mutable.Queue.empty[CompletableFuture[T]]
  @volatile private var isClosed = false
  fill()

  def hasNext: Boolean = running.nonEmpty

  /** The result of the next job; throws what the job threw. */
  def next(): T =
    try {
      val result = running.head.get()
      advance()
      result
    } catch {
      case e: ExecutionException =>
        advance()
        throw e.getCause
    }

  /** Jobs that have begun go on; what they bring is released. */
  override def close(): Unit = {
    isClosed = true
    running.dequeueAll(_ => true).foreach(_.thenAccept(release(_)))
  }

  private def advance(): Unit = {
    running.dequeue()
    fill()
  }

  private def fill(): Unit = while (running.size < MaxAhead && jobs.hasNext) {
    val job = jobs.next()
    running += CompletableFuture.supplyAsync(() => if (isClosed) throw new CancellationException else job(), executor)
  }
}

private object Ahead {
  /** Of one store; as many results are held in memory or on disk at most. */
  private val MaxAhead = 4
  /** Of an executor: jobs wait for the checkpoint's file system more than they compute. */
  private val Threads = 8

  private val Name = "binshift-recover"
  private lazy val threads: ThreadPoolExecutor = ThreadUtils.newDaemonFixedThreadPool(Threads, Name)

  /** Relies on Spark: threads of a pool are named by it. */
  private def isOwnThread: Boolean = Thread.currentThread.getName.startsWith(Name)
}
