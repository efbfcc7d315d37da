package org.apache.spark.sql.binshift.ui

import java.util.concurrent.{TimeoutException, TimeUnit}
import java.util.concurrent.atomic.AtomicBoolean

import org.apache.spark.util.ThreadUtils

/**
 * Keeps information about a query that monitoring asks for again and again. The query is asked at most once a second and by one
 * thread at a time, however many callers there are.
 *
 * A look may wait for the query's checkpoint, but callers don't: after a second they get the result of the last look. So a
 * checkpoint that doesn't answer holds up neither the metrics of other queries nor the threads of Spark's UI.
 *
 * @param initial the value until the first look has ended
 * @param look    makes a new value from the last one; runs on a thread of its own
 */
private[ui] final class Latest[A](initial: A)(look: A => A) {
  @volatile private var last = initial
  @volatile private var seenAtNs = Option.empty[Long]
  private val isLooking = new AtomicBoolean

  /** May be called from any thread. */
  def get(): A = {
    val isFresh = seenAtNs.exists(System.nanoTime() - _ < Latest.FreshNs)
    if (!isFresh && isLooking.compareAndSet(false, true)) {
      val asks: Runnable = () =>
        try {
          last = look(last)
          seenAtNs = Some(System.nanoTime())
        } finally isLooking.set(false)
      val asked = Latest.Looks.submit(asks)
      try asked.get(Latest.MaxWaitMs, TimeUnit.MILLISECONDS)
      catch { case _: TimeoutException => () }
    }
    last
  }
}

private object Latest {
  private val FreshNs = TimeUnit.SECONDS.toNanos(1)
  private val MaxWaitMs = 1000L
  private lazy val Looks = ThreadUtils.newDaemonCachedThreadPool("binshift-metrics", 16)
}
