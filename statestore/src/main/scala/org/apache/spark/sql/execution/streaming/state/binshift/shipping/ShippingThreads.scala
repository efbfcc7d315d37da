package org.apache.spark.sql.execution.streaming.state.binshift.shipping

import java.util.concurrent.{ScheduledExecutorService, ThreadPoolExecutor}
import java.util.concurrent.atomic.AtomicLong

import org.apache.spark.util.ThreadUtils

/** The threads of an executor that ship in the background, and what they share. */
private[binshift] object ShippingThreads {
  /** Bins are in no hurry, and the cores are the stream's. */
  private val Exports = 1
  /** As many sources are followed at a time, since following one is waiting for the checkpoint's file system above all. */
  val Followed = 4
  private val MaxWaiting = 64
  private val Answers = 4
  private val Freed = 2

  /** Short jobs, one per store that gives bins away, which its next epoch waits for; they wait for RocksDB. */
  lazy val links: ThreadPoolExecutor = ThreadUtils.newDaemonCachedThreadPool("binshift-link", MaxWaiting)

  /** Long jobs, one per store that gives bins away. */
  lazy val exports: ThreadPoolExecutor = ThreadUtils.newDaemonFixedThreadPool(Exports, "binshift-export")

  /** A thread for each store that gives bins away on demand, since new owners wait for each of them. */
  lazy val onDemand: ThreadPoolExecutor = ThreadUtils.newDaemonCachedThreadPool("binshift-on-demand", MaxWaiting)

  /** Counts rows of files, which snapshots wait for; as fast as one core can. */
  lazy val counts: ThreadPoolExecutor = ThreadUtils.newDaemonFixedThreadPool(1, "binshift-count")

  /** Notes the rows of bins that are audited; the snapshots that they are read from keep databases from being closed. */
  lazy val notes: ThreadPoolExecutor = ThreadUtils.newDaemonFixedThreadPool(1, "binshift-audit-notes")

  /** Audits, which read the checkpoint and tell the driver. */
  lazy val audits: ThreadPoolExecutor = ThreadUtils.newDaemonFixedThreadPool(1, "binshift-audit")

  /** Makes files of deletions; what is late is done without. */
  lazy val removals: ThreadPoolExecutor = ThreadUtils.newDaemonFixedThreadPool(1, "binshift-removals")

  /** Frees what receivers have; may wait for those that read. */
  lazy val freeing: ScheduledExecutorService = ThreadUtils.newDaemonThreadPoolScheduledExecutor("binshift-free", Freed)

  /** Closes copies, which may wait for who reads a checkpoint for them. */
  lazy val closing: ThreadPoolExecutor = ThreadUtils.newDaemonCachedThreadPool("binshift-close", MaxWaiting)

  /** Looks for requests for rows, with a pause of milliseconds, as long as a store here may be asked for some. */
  lazy val polling: ScheduledExecutorService = ThreadUtils.newDaemonSingleThreadScheduledExecutor("binshift-row-requests")

  /** Looks up and sends the rows that are asked for; who asks waits. */
  lazy val answers: ThreadPoolExecutor = ThreadUtils.newDaemonCachedThreadPool("binshift-rows", Answers)

  /** Short turns, some per source of bins that stores here are about to get. */
  lazy val staging: ScheduledExecutorService =
    ThreadUtils.newDaemonThreadPoolScheduledExecutor("binshift-stage", Followed)

  /**
   * Wait for other executors, some of which may not answer for minutes; [[BlockFetch]] bounds how many fetch, and
   * each copy begins to send one thing at a time, as does who asks for rows. An answer is sent as often as it is asked for.
   */
  lazy val fetches: ThreadPoolExecutor = ThreadUtils.newDaemonCachedThreadPool("binshift-fetch")

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
    count(bytes, wait, bound)
    if (wait > 0) Meter.sleep(wait)
    if (!areAllCoresBusy)
      ExecutorLoad.awaitFreeCore(
        math.min(Meter.costNs(bytes, math.min(rate, CopyPace.LeastRate)) - Meter.costNs(bytes, rate), Meter.MaxWaitNs))
  }

  /** Counts `bytes` as sent, without a wait. */
  def charge(bytes: Long, bound: Long, areAllCoresBusy: Boolean): Unit =
    count(bytes, sending.charge(bytes, rateWithin(bound, areAllCoresBusy)), bound)

  /** Whether what was sent is within the rate. */
  def maySend(): Boolean = sending.waitNs <= 0

  /** Counts `bytes` as received. */
  def received(bytes: Long, bound: Long, areAllCoresBusy: Boolean): Unit =
    count(bytes, receiving.charge(bytes, rateWithin(bound, areAllCoresBusy)), bound)

  /** Whether what was received is within the rate. */
  def mayReceive(): Boolean = receiving.waitNs <= 0

  /**
   * Counts `bytes` of a checkpoint, and waits as the pace demands, but reads [[CopyPace.FirstRate]] a second at least: who reads
   * holds a thread that others need.
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
