package org.apache.spark.sql.binshift.ui

import java.util.concurrent.{TimeoutException, TimeUnit}
import java.util.concurrent.atomic.AtomicBoolean

import org.apache.spark.util.ThreadUtils

/**
 * Something about a query that monitoring asks for again and again. It is looked up once a second at most, and by one thread at a
 * time, however many ask.
 *
 * A look may wait for the query's checkpoint. Whoever asks doesn't: after a second it gets what was seen last. So a checkpoint
 * that doesn't answer holds up neither the metrics of other queries nor the threads of Spark's UI.
 *
 * @param initial what there is before the first look has ended
 * @param look    gets what was seen last; runs on a thread of its own
 */
private[ui] final class Latest[A](initial: A)(look: A => A) {
  @volatile private var last = initial
  @volatile private var seenAtNs = Option.empty[Long]
  private val isLooking = new AtomicBoolean

  /** Any thread may ask. */
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
