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
  private val Freed = 2

  /** Short jobs, one per store that gives bins away, which its next epoch waits for; they wait for RocksDB. */
  lazy val links: ThreadPoolExecutor = ThreadUtils.newDaemonCachedThreadPool("binshift-link", MaxWaiting)

  /** Long jobs, one per store that gives bins away. */
  lazy val exports: ThreadPoolExecutor = ThreadUtils.newDaemonFixedThreadPool(Exports, "binshift-export")

  /** A thread for each store that gives bins away on demand, since new owners wait for each of them. */
  lazy val onDemand: ThreadPoolExecutor = ThreadUtils.newDaemonCachedThreadPool("binshift-on-demand", MaxWaiting)

  /** Counts rows of files, which snapshots wait for; as fast as one core can. */
  lazy val counts: ThreadPoolExecutor = ThreadUtils.newDaemonFixedThreadPool(1, "binshift-count")

  /** Frees what receivers have; may wait for those that read. */
  lazy val freeing: ScheduledExecutorService = ThreadUtils.newDaemonThreadPoolScheduledExecutor("binshift-free", Freed)

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

  /** Bytes that this executor has copied from or to others in the background. */
  val copiedBytes = new AtomicLong()

  private val sending = new Meter
  private val receiving = new Meter

  /**
   * Blocks until `bytes` more may be sent at the measured pace, `bound` bytes per second at most; or at the least rate while no
   * core is free.
   *
   * @param areAllCoresBusy whether tasks have all cores all the time, also when they have nothing to do: none is waited for, and
   *                        the pace is not measured
   */
  def pace(bytes: Long, bound: Long, areAllCoresBusy: Boolean): Unit = {
    val rate = rateWithin(bound, areAllCoresBusy)
    val wait = sending.charge(bytes, rate)
    count(bytes, wait)
    if (wait > 0) Thread.sleep(wait / 1000000, (wait % 1000000).toInt)
    if (!areAllCoresBusy)
      ExecutorLoad.awaitFreeCore(
        math.min(Meter.costNs(bytes, math.min(rate, CopyPace.LeastRate)) - Meter.costNs(bytes, rate), MaxWaitNs))
  }

  /** Counts `bytes` as sent, without a wait. */
  def charge(bytes: Long, bound: Long, areAllCoresBusy: Boolean): Unit =
    count(bytes, sending.charge(bytes, rateWithin(bound, areAllCoresBusy)))

  /** Whether what was sent is within the rate. */
  def maySend(): Boolean = sending.waitNs <= 0

  /** Counts `bytes` as received. */
  def received(bytes: Long, bound: Long, areAllCoresBusy: Boolean): Unit =
    count(bytes, receiving.charge(bytes, rateWithin(bound, areAllCoresBusy)))

  /** Whether what was received is within the rate. */
  def mayReceive(): Boolean = receiving.waitNs <= 0

  private def count(bytes: Long, waitNs: Long): Unit = {
    copiedBytes.addAndGet(bytes)
    if (waitNs > 0) CopyPace.here.limits()
  }

  private def rateWithin(bound: Long, areAllCoresBusy: Boolean): Long =
    if (areAllCoresBusy) math.min(bound, CopyPace.FirstRate)
    else if (ExecutorLoad.isIdle) bound
    else math.min(bound, CopyPace.here.bytesPerSecond)

  private final class Meter {
    /** In nanoseconds, before which nothing more may go. */
    private val next = new AtomicLong(System.nanoTime())

    /** Returns the nanoseconds that `bytes` should have waited. */
    def charge(bytes: Long, bytesPerSecond: Long): Long = {
      val cost = Meter.costNs(bytes, bytesPerSecond)
      val now = System.nanoTime()
      // Queries share an executor: one with a low rate must not keep the others waiting for long.
      next.getAndUpdate(next => math.min(math.max(next, now) + cost, now + MaxWaitNs)) - now
    }

    def waitNs: Long = next.get - System.nanoTime()
  }

  private object Meter {
    def costNs(bytes: Long, bytesPerSecond: Long): Long = bytes * 1000000000L / bytesPerSecond
  }
}
