package org.apache.spark.sql.execution.streaming.state.binshift.shipping

/**
 * Whether a step had better wait for a copy that is behind its source: each version that the copy lacks is a changelog
 * that the task of the switch reads.
 *
 * A copy is waited for as long as it gains on its source. The lag is a whole number, and has to reach a new low every
 * [[CatchUp.Patience]] epochs, so no step is put off for ever.
 *
 * Thread-safe.
 */
private[binshift] final class CatchUp {
  import CatchUp._

  private var least = Long.MaxValue
  /** The epoch at which the lag was `least`, or at which there was none. */
  private var since = 0L

  /** When an epoch begins; `lag` is in versions. */
  def begin(epoch: Long, lag: Long): Unit = synchronized {
    if (lag <= MaxLag) {
      least = Long.MaxValue
      since = epoch
    } else if (lag < least) {
      least = lag
      since = epoch
    }
  }

  /** While `epoch` runs. */
  def isAwaited(epoch: Long, lag: Long): Boolean =
    synchronized(lag > MaxLag && epoch - since < Patience)
}

private[binshift] object CatchUp {
  /** Versions that are left to the task of the switch. One is committed while the switch is decided. */
  val MaxLag = 1
  /** Epochs in which a copy must have gained on its source. */
  val Patience = 10
}
