package org.apache.spark.sql.execution.streaming.state.binshift.shipping

import java.util.concurrent.{ScheduledExecutorService, ThreadPoolExecutor}
import java.util.concurrent.atomic.AtomicLong

import org.apache.spark.util.ThreadUtils

/** The threads of an executor that ship in the background, and what they share. */
private[binshift] object ShippingThreads {
  /** Bins are in no hurry, and the cores are the stream's. */
  private val Exports = 1
  /** As many sources are followed at a time, since following one is waiting for the checkpoint's file system above all. */
  private val Followed = 4
  private val MaxWaiting = 64
  private val Answers = 4
  private val MaxWaitNs = 5000000000L
  /** How much slower an executor sends whose cores are all busy. */
  private val BusyFactor = 8

  /** Short jobs, one per store that gives bins away, which its next epoch waits for; they wait for RocksDB. */
  lazy val links: ThreadPoolExecutor = ThreadUtils.newDaemonCachedThreadPool("binshift-link", MaxWaiting)

  /** Long jobs, one per store that gives bins away. */
  lazy val exports: ThreadPoolExecutor = ThreadUtils.newDaemonFixedThreadPool(Exports, "binshift-export")

  /** A thread for each store that gives bins away on demand, since new owners wait for each of them. */
  lazy val onDemand: ThreadPoolExecutor = ThreadUtils.newDaemonCachedThreadPool("binshift-on-demand", MaxWaiting)

  /** Looks for requests for rows, with a pause of milliseconds, as long as a store here may be asked for some. */
  lazy val polling: ScheduledExecutorService = ThreadUtils.newDaemonSingleThreadScheduledExecutor("binshift-row-requests")

  /** Looks up and sends the rows that are asked for; who asks waits. */
  lazy val answers: ThreadPoolExecutor = ThreadUtils.newDaemonCachedThreadPool("binshift-rows", Answers)

  /** Short turns, some per source of bins that stores here are about to get. */
  lazy val staging: ScheduledExecutorService =
    ThreadUtils.newDaemonThreadPoolScheduledExecutor("binshift-stage", Followed)

  /** Long turns, which sleep as the pace demands: whole partitions are fetched one after the other. */
  lazy val warming: ScheduledExecutorService = ThreadUtils.newDaemonSingleThreadScheduledExecutor("binshift-warm")

  /** Standbys talk to the driver; short turns. */
  lazy val standbyTurns: ScheduledExecutorService = ThreadUtils.newDaemonSingleThreadScheduledExecutor("binshift-standby-turn")

  /** Standbys follow the checkpoint; turns of an interval's length, which mostly wait for it. */
  lazy val standbys: ThreadPoolExecutor = ThreadUtils.newDaemonFixedThreadPool(Followed, "binshift-standby")

  /** Bytes of all standbys on this executor. */
  val standbyBytes = new AtomicLong()

  /** Bytes of all copies that wait on this executor. */
  val stagedBytes = new AtomicLong()

  /** Wall-clock time, in nanoseconds, before which nothing more may be sent. */
  private val nextSend = new AtomicLong(System.nanoTime())

  /**
   * Blocks until `bytes` more may be sent at `bytesPerSecond`, or an eighth of that while no core is free.
   *
   * @param areAllCoresBusy whether tasks have all cores all the time, also when they have nothing to do: none is waited for
   */
  def pace(bytes: Long, bytesPerSecond: Long, areAllCoresBusy: Boolean): Unit = {
    val wait = charge(bytes, bytesPerSecond)
    if (wait > 0) Thread.sleep(wait / 1000000, (wait % 1000000).toInt)
    if (!areAllCoresBusy)
      ExecutorLoad.awaitFreeCore(math.min(costNs(bytes, bytesPerSecond) * (BusyFactor - 1), MaxWaitNs))
  }

  /** Counts `bytes` as sent; returns the nanoseconds that they should have waited. */
  def charge(bytes: Long, bytesPerSecond: Long): Long = {
    val cost = costNs(bytes, bytesPerSecond)
    val now = System.nanoTime()
    // Queries share an executor: one with a low rate must not keep the others waiting for long.
    nextSend.getAndUpdate(next => math.min(math.max(next, now) + cost, now + MaxWaitNs)) - now
  }

  private def costNs(bytes: Long, bytesPerSecond: Long): Long = bytes * 1000000000L / bytesPerSecond

  /** Whether what was sent is within the rate. */
  def maySend(): Boolean = nextSend.get - System.nanoTime() <= 0
}
