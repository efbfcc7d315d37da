package org.apache.spark.sql.execution.streaming.state.binshift.shipping

import java.util.concurrent.atomic.AtomicLong

/**
 * Computes how long bytes have to wait to keep to a rate. Thread-safe.
 *
 * @param now   nanoseconds of a clock that doesn't go back
 * @param sleep waits the given nanoseconds
 */
private[binshift] final class Meter(now: () => Long = () => System.nanoTime(), sleep: Long => Unit = Meter.sleep) {
  import Meter._

  /** The time before which nothing more may be sent. */
  private val next = new AtomicLong(now())

  /** Counts `bytes`, and returns the nanoseconds that they should have waited. */
  def charge(bytes: Long, bytesPerSecond: Long): Long = {
    val cost = costNs(bytes, bytesPerSecond)
    val time = now()
    // Queries share an executor, so a query with a low rate must not keep the others waiting for long.
    next.getAndUpdate(next => math.min(math.max(next, time) + cost, time + MaxWaitNs)) - time
  }

  def waitNs: Long = next.get - now()

  /** Waits until everything that was counted has had its time, but no longer than `bytes` take at `leastRate`. */
  def await(bytes: Long, leastRate: Long): Unit = {
    val wait = math.min(waitNs, costNs(bytes, leastRate))
    if (wait > 0) sleep(wait)
  }
}

private[binshift] object Meter {
  val MaxWaitNs = 5000000000L

  def costNs(bytes: Long, bytesPerSecond: Long): Long = bytes * 1000000000L / bytesPerSecond

  def sleep(ns: Long): Unit = Thread.sleep(ns / 1000000, (ns % 1000000).toInt)
}
