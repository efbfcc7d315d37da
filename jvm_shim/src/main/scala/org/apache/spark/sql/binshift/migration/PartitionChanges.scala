package org.apache.spark.sql.binshift.migration

import org.apache.spark.sql.binshift.internals.SparkInternals
import org.apache.spark.sql.binshift.realtime.EpochProtocol
import org.apache.spark.sql.binshift.routing.RunState
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution
import org.apache.spark.sql.execution.streaming.state.binshift.routing.RoutingEntry
import org.apache.spark.util.ThreadUtils

/**
 * Adapts placement and metadata to the number of partitions of an epoch.
 *
 * Called on the stream's thread while the epoch is planned, with the session of its plan.
 */
private[binshift] final class PartitionChanges(
    query: MicroBatchExecution, run: RunState, relocation: Relocation, shipments: ShipmentCoordinator, protocol: EpochProtocol) {
  /** Partitions that no longer exist, but whose stores may still have to send the bins that left them. */
  private var retiring = Set.empty[Int]

  /**
   * @param n       the partitions of `epoch`, whose table is that of `entry`
   * @param before  the number of partitions of the epoch before; `None` at the first epoch of a run
   * @param placeOn executors for new partitions, if any are named
   */
  def enter(epoch: Long, n: Int, entry: RoutingEntry, before: Option[Int], placeOn: Seq[String], session: SparkSession): Unit =
    if (!before.contains(n)) {
      before.foreach { b =>
        retiring = (retiring ++ (n until b)).filter(_ >= n)
        Placement.place(session, query.id, run.now.binned, b until n, placeOn, relocation.leaving)
      }
      correctMetadata(epoch, isFirst = run.now.epoch.isEmpty, session)
    } else if (protocol.isRealTime && entry.epoch == epoch - 1) {
      // A driver that was started by mistake may have changed the metadata for the epoch before.
      correctMetadata(epoch, isFirst = false, session)
    }

  /** Lets executors close the stores of partitions that no longer exist, which ends their sending. */
  def retire(session: SparkSession): Unit = if (retiring.nonEmpty) {
    val (sending, idle) = retiring.partition(shipments.sending)
    run.now.binned.foreach(Placement.retire(session, _, idle))
    retiring = sending
  }

  private def correctMetadata(epoch: Long, isFirst: Boolean, session: SparkSession): Unit = {
    val operators = run.now.operators
    ThreadUtils.parmap(operators, "binshift-operator-metadata", operators.size)(
      SparkInternals.updateOperatorMetadata(session, _, protocol.newestLogged(epoch), isFirst))
  }
}
