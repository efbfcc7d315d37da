package org.apache.spark.sql.execution.streaming.state.binshift.recovery

import java.util.concurrent.{CancellationException, ExecutionException, FutureTask, ThreadPoolExecutor}

import scala.collection.mutable

import org.apache.spark.util.ThreadUtils

/**
 * Runs jobs on other threads, a few ahead of the caller, who takes the results in order. If no thread has begun the next job, the
 * caller runs it itself. So the caller never waits for threads that are held up by another query's file system, or that wait in the
 * same way, as jobs do that recover another partition.
 *
 * Used by one thread.
 *
 * @param release called with results that nobody took
 */
private[binshift] final class Ahead[T](jobs: Iterator[() => T], release: T => Unit) extends AutoCloseable {
  import Ahead._

  private val running = mutable.Queue.empty[Job]
  @volatile private var isClosed = false
  fill()

  def hasNext: Boolean = running.nonEmpty

  /** The result of the next job; throws what the job threw. */
  def next(): T = {
    val job = running.head
    // Does nothing if the job has begun.
    job.run()
    try {
      val result = job.get()
      advance()
      result
    } catch {
      case e: ExecutionException =>
        advance()
        throw e.getCause
    }
  }

  /** Jobs that have begun continue, and their results are released. */
  override def close(): Unit = {
    isClosed = true
    running.dequeueAll(_ => true).foreach(_.drop())
  }

  private def advance(): Unit = {
    running.dequeue()
    fill()
  }

  private def fill(): Unit = while (running.size < MaxAhead && jobs.hasNext) {
    val job = new Job(jobs.next())
    running += job
    threads.execute(job)
  }

  private final class Job(make: () => T)
    extends FutureTask[T](() => if (isClosed) throw new CancellationException else make()) {
    private var isDropped = false
    private var isReleased = false

    def drop(): Unit = synchronized {
      isDropped = true
      releaseIfDone()
    }

    override protected def done(): Unit = synchronized(releaseIfDone())

    private def releaseIfDone(): Unit = if (isDropped && isDone && !isReleased) {
      isReleased = true
      try release(get())
      catch { case _: ExecutionException => () }
    }
  }
}

private object Ahead {
  /** How many jobs of a store run ahead; at most as many results are held in memory or on disk. */
  private val MaxAhead = 4
  /** Threads of an executor. There are more than cores, because jobs mostly wait for the checkpoint's file system. */
  private val Threads = 8

  private lazy val threads: ThreadPoolExecutor = ThreadUtils.newDaemonFixedThreadPool(Threads, "binshift-recover")
}
