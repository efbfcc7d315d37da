package org.apache.spark.sql.binshift.migration

import java.util.concurrent.{ScheduledExecutorService, ThreadPoolExecutor, TimeUnit}
import java.util.concurrent.atomic.AtomicBoolean

import org.apache.spark.sql.execution.streaming.state.binshift.OrWarn
import org.apache.spark.util.ThreadUtils

/**
 * Checks at short intervals whether something has happened to executors to which a query must react before its next epoch. It polls,
 * because Spark has no event for the decommissioning of an executor.
 *
 * @param isDue whether there is something to do; must not wait for anything
 * @param act   does it, on a thread of its own, never twice at a time
 */
private[binshift] final class ExecutorWatch(name: String, isDue: () => Boolean, act: () => Unit) extends OrWarn {
  import ExecutorWatch._

  private val isActing = new AtomicBoolean
  private val looking = Looks.scheduleWithFixedDelay(() => look(), PeriodMs, PeriodMs, TimeUnit.MILLISECONDS)

  def close(): Unit = looking.cancel(false)

  /** Checks now, because something may have happened. Waits for nothing. */
  def soon(): Unit = look()

  private def look(): Unit = guarded {
    if (isDue() && isActing.compareAndSet(false, true)) Acts.execute(() => actOnce())
  }

  private def actOnce(): Unit =
    try guarded(act())
    finally isActing.set(false)

  private def guarded(work: => Unit): Unit =
    orWarn(s"$name could not check which executors Spark decommissions; its next epoch checks again")(work)
}

private object ExecutorWatch {
  /** Spark's executors look every second whether they may go. */
  private val PeriodMs = 250L
  private lazy val Looks: ScheduledExecutorService =
    ThreadUtils.newDaemonSingleThreadScheduledExecutor("binshift-executors")
  private lazy val Acts: ThreadPoolExecutor = ThreadUtils.newDaemonCachedThreadPool("binshift-executors-act", 64)
}
