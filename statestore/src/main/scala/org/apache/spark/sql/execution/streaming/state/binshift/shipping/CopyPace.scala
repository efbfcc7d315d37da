package org.apache.spark.sql.execution.streaming.state.binshift.shipping

import scala.collection.mutable

/**
 * How fast an executor copies while its cores have tasks: as fast as tasks do not notice. While no task runs, the upper bound that
 * the user has set holds alone.
 *
 * The rate goes up by a half as long as something waits for it and tasks take as long as they do when nothing is copied. It is halved
 * when they take longer.
 * It never falls so low that copies would not come at all.
 *
 * Thread-safe.
 *
 * @param now time in nanoseconds
 */
private[binshift] final class CopyPace(now: () => Long) {
  import CopyPace._

  private var rate = FirstRate
  private var windowEnds = 0L
  /** Whether copies would have gone faster in this window. */
  private var isLimit = false
  /** By how much tasks took longer that ended in this window. */
  private val growths = mutable.ArrayBuffer.empty[Double]

  /** Bytes per second that may be copied while tasks run. */
  def bytesPerSecond: Long = synchronized {
    judge()
    rate
  }

  /** Whether it cannot be copied any slower, so that it is not copying that tasks take longer for. */
  def isLeast: Boolean = synchronized(rate == LeastRate)

  /**
   * Something has to wait that may go at `bound` bytes per second at most. The rate is not what it waits for if that is less: a rate
   * far above it would have to be halved many times before tasks noticed.
   */
  def waits(bound: Long): Unit = synchronized { if (rate < bound) isLimit = true }

  /** A task had its store for `ns`, while something was copied; it usually has it for `usual`. */
  def taskTook(ns: Long, usual: Long): Unit = synchronized {
    judge()
    if (growths.isEmpty) windowEnds = now() + WindowNs
    growths += (ns - usual - JitterNs).toDouble / math.max(usual, 1)
  }

  /** Some tasks are judged together, since one takes longer for many reasons. */
  private def judge(): Unit = if (growths.nonEmpty && now() >= windowEnds) {
    val median = growths.sorted.apply(growths.size / 2)
    if (median > Noticed) rate = math.max(LeastRate, rate / 2)
    else if (isLimit) rate = math.min(MostRate, rate + rate / 2)
    growths.clear()
    isLimit = false
  }
}

private[binshift] object CopyPace {
  /** Where tasks have told nothing yet, and where they cannot; as the others, in bytes per second. */
  val FirstRate: Long = 8L << 20
  val LeastRate: Long = 1L << 20
  private val MostRate = 1L << 30
  private val WindowNs = 250000000L
  /** By how much a task takes longer that has noticed something. */
  private val Noticed = 0.15
  /** By how much any task may take longer. */
  private val JitterNs = 20000000L

  /** That of this executor. */
  val here = new CopyPace(() => System.nanoTime())
}

/**
 * What a store's tasks take, told to the pace of its executor.
 *
 * Called by the store's task.
 *
 * @param copied bytes that the executor has copied so far
 */
private[binshift] final class TaskTimes(pace: CopyPace, copied: () => Long, now: () => Long) {
  import TaskTimes._

  /** The last times, of tasks during which nothing was copied. */
  private val quiet = mutable.Queue.empty[Long]
  private var begun: Option[(Long, Long)] = None

  /** The store is loaded. */
  def begin(): Unit = begun = Some((now(), copied()))

  /** What it takes says nothing, as when it waits for copies. */
  def forget(): Unit = begun = None

  /** It has committed. */
  def end(): Unit = {
    begun.foreach { case (at, before) =>
      val ns = now() - at
      val isQuiet = copied() == before
      if (!isQuiet && quiet.size >= Few) pace.taskTook(ns, quiet.sorted.apply(quiet.size / 2))
      // A task may take longer for good, because there is more to do; copying is not to blame if it hardly goes on.
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
