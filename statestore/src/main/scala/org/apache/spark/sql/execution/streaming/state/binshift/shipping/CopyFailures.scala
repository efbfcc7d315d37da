package org.apache.spark.sql.execution.streaming.state.binshift.shipping

import org.apache.spark.internal.Logging
import org.apache.spark.sql.execution.streaming.state.StateStoreId

/**
 * Decides whether a copy that failed is made again: a few times, after longer and longer pauses.
 *
 * Used with the copy's lock.
 *
 * @param isAhead whether no task waits for the copy
 */
private[binshift] final class CopyFailures(source: StateStoreId, target: Int, isAhead: Boolean) extends Logging {
  import CopyFailures._

  private var failures = 0
  /** The time at which the copy should be made again, in nanoseconds. */
  private var retryAt = System.nanoTime()

  def count: Int = failures

  def isPauseOver: Boolean = System.nanoTime() - retryAt >= 0

  /**
   * Counts a failure, and returns whether the copy should be made again after a pause.
   *
   * @param wasStaged whether the copy was complete
   */
  def isAnewAfter(e: Throwable, wasStaged: Boolean): Boolean = {
    failures += 1
    val isDamaged = e.isInstanceOf[DamagedShipment]
    // A task that waits for a copy should read the checkpoint itself, rather than wait for another failure.
    val isAnew = if (isAhead) failures <= MaxFailures else isDamaged && !wasStaged
    if (isAnew) {
      val pauseMs = if (isDamaged && failures == 1) 0L else PauseMs << failures
      retryAt = System.nanoTime() + pauseMs * 1000000
      logWarning(
        s"$target: the copy of the bins of $source is made again from the checkpoint (failure $failures of at " +
          s"most ${MaxFailures + 1}): ${e.getMessage}", if (isDamaged) null else e)
    } else {
      logWarning(s"$target: the bins of $source cannot be copied ahead; they are read from the checkpoint at their switch", e)
    }
    isAnew
  }
}

private object CopyFailures {
  /** How often a copy is made again. */
  private val MaxFailures = 3
  /** Half of the pause after the first failure, milliseconds; it doubles with each. */
  private val PauseMs = 125L
}
