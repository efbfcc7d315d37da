package org.apache.spark.sql.execution.streaming.state.binshift.shipping

import scala.collection.mutable

/**
 * Sets the rate at which an executor copies while its cores run tasks: as fast as possible without noticeably slowing tasks down.
 * While no task runs, only the user's upper bound applies.
 *
 * The rate goes up by a half as long as copying waits for it, and tasks take no longer than when nothing is copied. It is halved
 * when tasks take longer. It never falls so low that copies would never finish.
 *
 * Thread-safe.
 *
 * @param now time in nanoseconds
 */
private[binshift] final class CopyPace(now: () => Long) {
  import CopyPace._

  private var rate = FirstRate
  private var windowEnds = 0L
  /** True if the rate has held up copies in this window. */
  private var isLimit = false
  /** By how much longer the tasks took that ended in this window. */
  private val growths = mutable.ArrayBuffer.empty[Double]

  /** Bytes per second that may be copied while tasks run. */
  def bytesPerSecond: Long = synchronized {
    judge()
    rate
  }

  /** True if this is the lowest rate, so that copying can't be the reason if tasks take longer. */
  def isLeast: Boolean = synchronized(rate == LeastRate)

  /**
   * Notes that something with a bound of `bound` bytes per second has to wait. If the bound is lower than the rate, it isn't the rate
   * that holds it up, so the rate shouldn't go up: it would have to be halved many times later, before that helps tasks.
   */
  def waits(bound: Long): Unit = synchronized { if (rate < bound) isLimit = true }

  /** Notes that a task had its store for `ns` while something was copied. Usually it has it for `usual`. */
  def taskTook(ns: Long, usual: Long): Unit = synchronized {
    judge()
    if (growths.isEmpty) windowEnds = now() + WindowNs
    growths += (ns - usual - JitterNs).toDouble / math.max(usual, 1)
  }

  /** Judges several tasks together, because a single task may take longer for many reasons. */
  private def judge(): Unit = if (growths.nonEmpty && now() >= windowEnds) {
    val median = growths.sorted.apply(growths.size / 2)
    if (median > Noticed) rate = math.max(LeastRate, rate / 2)
    else if (isLimit) rate = math.min(MostRate, rate + rate / 2)
    growths.clear()
    isLimit = false
  }
}

private[binshift] object CopyPace {
  /** The rate before tasks have shown anything, and if they can't. In bytes per second, like the others. */
  val FirstRate: Long = 8L << 20
  val LeastRate: Long = 1L << 20
  private val MostRate = 1L << 30
  private val WindowNs = 250000000L
  /** A task that takes longer by this share was slowed down by copying. */
  private val Noticed = 0.15
  /** By how much any task may take longer by chance. */
  private val JitterNs = 20000000L

  /** The pace of this executor. */
  val here = new CopyPace(() => System.nanoTime())
}

/**
 * Measures how long a store's tasks take, and reports it to the pace of the executor.
 *
 * Called by the store's task.
 *
 * @param copied bytes that the executor has copied so far
 */
private[binshift] final class TaskTimes(pace: CopyPace, copied: () => Long, now: () => Long) {
  import TaskTimes._

  /** The last times of tasks during which nothing was copied. */
  private val quiet = mutable.Queue.empty[Long]
  private var begun: Option[(Long, Long)] = None

  /** Called when the store is loaded. */
  def begin(): Unit = begun = Some((now(), copied()))

  /** Ignores this task, because it does more than usual, for example waits for copies. */
  def forget(): Unit = begun = None

  /** Called when the store has committed. */
  def end(): Unit = {
    begun.foreach { case (at, before) =>
      val ns = now() - at
      val isQuiet = copied() == before
      if (!isQuiet && quiet.size >= Few) pace.taskTook(ns, quiet.sorted.apply(quiet.size / 2))
      // Tasks may take longer for good, because there is more to do. At the lowest rate, copying isn't to blame.
      if (isQuiet || pace.isLeast) {
        quiet += ns
        if (quiet.size > Kept) quiet.dequeue()
      }
    }
    begun = None
  }
}

private[binshift] object TaskTimes {
  private val Few = 2
  private val Kept = 8
}
