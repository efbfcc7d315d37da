package org.apache.spark.sql.execution.streaming.state.binshift.shipping

import java.util.concurrent.{ScheduledExecutorService, ThreadPoolExecutor}
import java.util.concurrent.atomic.AtomicLong

import org.apache.spark.util.ThreadUtils

/** The threads that ship bins in the background on an executor, and the counters that they share. */
private[binshift] object ShippingThreads {
  /** One is enough, because shipping isn't urgent and the cores belong to the stream. */
  private val Exports = 1
  /**
   * How many sources are followed at the same time. More than one, because a follower mostly waits for the checkpoint's file
   * system.
   */
  val Followed = 4
  private val MaxWaiting = 64
  private val Answers = 4
  private val Freed = 2

  /** Short jobs, one per store that gives bins away. They wait for RocksDB, and the store's next epoch waits for them. */
  lazy val links: ThreadPoolExecutor = ThreadUtils.newDaemonCachedThreadPool("binshift-link", MaxWaiting)

  /** Long jobs, one per store that gives bins away. */
  lazy val exports: ThreadPoolExecutor = ThreadUtils.newDaemonFixedThreadPool(Exports, "binshift-export")

  /** One thread per store that gives bins away on demand, because new owners wait for each of these stores. */
  lazy val onDemand: ThreadPoolExecutor = ThreadUtils.newDaemonCachedThreadPool("binshift-on-demand", MaxWaiting)

  /** Notes the rows of bins that are audited. No database can be closed while it has the snapshot from which they are read. */
  lazy val notes: ThreadPoolExecutor = ThreadUtils.newDaemonFixedThreadPool(1, "binshift-audit-notes")

  /** Runs audits, which read the checkpoint and report to the driver. */
  lazy val audits: ThreadPoolExecutor = ThreadUtils.newDaemonFixedThreadPool(1, "binshift-audit")

  /** Short turns, in which the rows of released bins are deleted that a switch has left. */
  lazy val sweeps: ScheduledExecutorService = ThreadUtils.newDaemonSingleThreadScheduledExecutor("binshift-sweep")

  /** Frees blocks that receivers have taken. May wait for somebody who reads such a block. */
  lazy val freeing: ScheduledExecutorService = ThreadUtils.newDaemonThreadPoolScheduledExecutor("binshift-free", Freed)

  /** Asks checkpoints which attempt's rows count, while the first rows are on their way. */
  lazy val lookups: ThreadPoolExecutor = ThreadUtils.newDaemonCachedThreadPool("binshift-lookup", MaxWaiting)

  /** Closes copies, and removes their messages. May wait for a thread that reads a checkpoint for them, or for the driver. */
  lazy val closing: ThreadPoolExecutor = ThreadUtils.newDaemonCachedThreadPool("binshift-close", MaxWaiting)

  /** Polls for requests for rows, every few milliseconds, while a store on this executor may be asked for rows. */
  lazy val polling: ScheduledExecutorService = ThreadUtils.newDaemonSingleThreadScheduledExecutor("binshift-row-requests")

  /** Looks up and sends requested rows, for which tasks wait. */
  lazy val answers: ThreadPoolExecutor = ThreadUtils.newDaemonCachedThreadPool("binshift-rows", Answers)

  /** Short turns, some for each source of bins that stores of this executor are about to get. */
  lazy val staging: ScheduledExecutorService =
    ThreadUtils.newDaemonThreadPoolScheduledExecutor("binshift-stage", Followed)

  /**
   * Waits for other executors, some of which may not answer for minutes. The number of threads is bounded elsewhere:
   * [[BlockFetch]] limits fetches, each copy and each [[RowClient]] sends one thing at a time, and an answer is only sent when it
   * is asked for.
   */
  lazy val fetches: ThreadPoolExecutor = ThreadUtils.newDaemonCachedThreadPool("binshift-fetch")

  /** Short turns in which standbys talk to the driver. */
  lazy val standbyTurns: ScheduledExecutorService = ThreadUtils.newDaemonSingleThreadScheduledExecutor("binshift-standby-turn")

  /** Turns in which standbys follow the checkpoint. They last up to an interval, and mostly wait. */
  lazy val standbys: ThreadPoolExecutor = ThreadUtils.newDaemonFixedThreadPool(Followed, "binshift-standby")

  /** Bytes of all standbys on this executor. */
  val standbyBytes = new AtomicLong()

  /** Bytes of all copies that wait on this executor for their switch. */
  val stagedBytes = new AtomicLong()

  /** Bytes that this executor has copied from or to others in the background. */
  val copiedBytes = new AtomicLong()

  private val sending = new Meter
  private val receiving = new Meter

  /**
   * Blocks until `bytes` more may be sent at the measured pace, but at most at `bound` bytes per second. While no core is free,
   * only the least rate is kept up.
   *
   * @param areAllCoresBusy whether tasks occupy all cores all the time, even when they have nothing to do. Then this doesn't wait
   *                        for a free core, and doesn't measure the pace.
   */
  def pace(bytes: Long, bound: Long, areAllCoresBusy: Boolean): Unit = {
    val rate = rateWithin(bound, areAllCoresBusy)
    val wait = sending.charge(bytes, rate)
    count(bytes, wait, bound)
    if (wait > 0) Meter.sleep(wait)
    if (!areAllCoresBusy)
      ExecutorLoad.awaitFreeCore(
        math.min(Meter.costNs(bytes, math.min(rate, CopyPace.LeastRate)) - Meter.costNs(bytes, rate), Meter.MaxWaitNs))
  }

  /** Counts `bytes` as sent, without waiting. */
  def charge(bytes: Long, bound: Long, areAllCoresBusy: Boolean): Unit =
    count(bytes, sending.charge(bytes, rateWithin(bound, areAllCoresBusy)), bound)

  /** True if the bytes that were sent are within the rate. */
  def maySend(): Boolean = sending.waitNs <= 0

  /** Counts `bytes` as received. */
  def received(bytes: Long, bound: Long, areAllCoresBusy: Boolean): Unit =
    count(bytes, receiving.charge(bytes, rateWithin(bound, areAllCoresBusy)), bound)

  /** True if the bytes that were received are within the rate. */
  def mayReceive(): Boolean = receiving.waitNs <= 0

  /**
   * Counts `bytes` that were read from a checkpoint, and waits to keep to the pace. It allows at least [[CopyPace.FirstRate]]
   * bytes per second, because the reader holds a thread that others need.
   */
  def receivedOfCheckpoint(bytes: Long, bound: Long, areAllCoresBusy: Boolean): Unit = {
    received(bytes, bound, areAllCoresBusy)
    receiving.await(bytes, CopyPace.FirstRate)
  }

  private def count(bytes: Long, waitNs: Long, bound: Long): Unit = {
    copiedBytes.addAndGet(bytes)
    if (waitNs > 0 && !ExecutorLoad.isIdle) CopyPace.here.waits(bound)
  }

  private def rateWithin(bound: Long, areAllCoresBusy: Boolean): Long =
    if (areAllCoresBusy) math.min(bound, CopyPace.FirstRate)
    else if (ExecutorLoad.isIdle) bound
    else math.min(bound, CopyPace.here.bytesPerSecond)
}
