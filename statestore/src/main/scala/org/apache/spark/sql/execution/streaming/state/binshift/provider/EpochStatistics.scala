package org.apache.spark.sql.execution.streaming.state.binshift.provider

import org.apache.spark.sql.execution.streaming.state.binshift.OrWarn
import org.apache.spark.sql.execution.streaming.state.StateStoreId
import org.apache.spark.sql.execution.streaming.state.binshift.routing.EpochRouting
import org.apache.spark.sql.execution.streaming.state.binshift.statistics.{BinCounts, KeySample, RowCounts, StoreReport}
import org.apache.spark.TaskContext

/**
 * The counts of a store while an epoch runs, which are reported to the driver once the epoch is committed.
 *
 * Used by the store's task.
 */
private[provider] final class EpochStatistics(store: StateStoreId, routing: EpochRouting) extends OrWarn {
  /** The version that is being counted, until it is committed. */
  private var counted: Option[Counted] = None
  private var keySample: KeySample = _

  /** Counts keys while a client asks for it; otherwise null. */
  def sample: KeySample = keySample

  /**
   * Called at each load. A task that reads before it writes loads a version twice, and its counts continue. Another attempt, or another
   * action of the same epoch, counts from the start.
   *
   * @return whether it counts from the start
   */
  def begin(version: Long): Boolean = {
    val now = Counted(version, Option(TaskContext.get()).map(_.taskAttemptId()))
    val isAnew = !counted.contains(now)
    if (isAnew) keySample = if (routing.keysWanted(version) > 0) new KeySample else null
    counted = Some(now)
    isAnew
  }

  /**
   * Reports the counts of `epoch`, which is committed.
   *
   * @param size    rows of the whole store, if they are known
   * @param awaited bins whose copies the store waits for
   */
  def report(epoch: Long, counts: BinCounts, isSized: Boolean, size: => Option[RowCounts], awaited: => Int): Unit = {
    forget()
    // Statistics are not worth failing an epoch that is committed.
    orWarn(s"$store could not report its bins at epoch $epoch")(routing.reportAddress(epoch).foreach { address =>
      val hot = Option(keySample).toSeq.flatMap(_.hottest(routing.keysWanted(epoch)))
      address.add(StoreReport.of(store, epoch, counts, isSized, size, awaited, hot).toBytes)
    })
  }

  /** Makes the next load count from the start. */
  def forget(): Unit = counted = None
}

/** A version, and the attempt of the task that works on it. */
private final case class Counted(version: Long, task: Option[Long])
