package org.apache.spark.sql.execution.streaming.state.binshift.shipping

/**
 * Decides whether a step should wait for a copy that lags behind its source. For each version that the copy lacks, the task of the
 * switch has to read a changelog.
 *
 * A step waits for a copy as long as the copy catches up. The lag is a whole number, and has to reach a new low every
 * [[CatchUp.Patience]] epochs, so no step is put off for ever.
 *
 * Thread-safe.
 */
private[binshift] final class CatchUp {
  import CatchUp._

  private var least = Long.MaxValue
  /** The epoch at which the lag was `least`, or at which there was none. */
  private var since = 0L

  /** Called when an epoch begins; `lag` is in versions. */
  def begin(epoch: Long, lag: Long): Unit = synchronized {
    if (lag <= MaxLag) {
      least = Long.MaxValue
      since = epoch
    } else if (lag < least) {
      least = lag
      since = epoch
    }
  }

  /** True if the step should wait, while `epoch` runs. */
  def isAwaited(epoch: Long, lag: Long): Boolean =
    synchronized(lag > MaxLag && epoch - since < Patience)
}

private[binshift] object CatchUp {
  /** How many versions are left to the task of the switch. At least one, which is committed while the switch is decided. */
  val MaxLag = 1
  /** The number of epochs within which a copy's lag must shrink. */
  val Patience = 10
}
