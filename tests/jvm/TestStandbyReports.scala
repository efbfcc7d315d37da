package org.apache.spark.sql.binshift.migration

import org.apache.spark.sql.execution.streaming.state.StateStoreId
import org.apache.spark.sql.execution.streaming.state.binshift.shipping.{StandbyOrder, StandbyProgress, StandbyReport}

/** What the driver knows of an executor's standbys while its order changes. */
object TestStandbyReports {
  private val complete = StandbyProgress(7, 9, hasFailed = false)
  private val missing = StandbyProgress(-1, -1, hasFailed = false)

  /** Returns `null`, or what is wrong. */
  def check(): String = {
    val first = ordered(1, 1, 7)
    val known = after(None, first, 1, complete, missing)
    // Somebody waits for partition 7 now, so it comes first.
    val turned = known.keepOnly(Some(ordered(2, 7, 1)))
    val late = after(Some(turned), ordered(2, 7, 1), 1, complete, complete)
    val dropped = turned.keepOnly(Some(ordered(3, 7)))
    Seq(
      "of the order in force" -> (known.stores == Map(store(1) -> complete, store(7) -> missing)),
      "after the sequence has changed" -> (turned.stores == known.stores),
      "of an older order" -> (late.stores == known.stores),
      "of the newer order" ->
        (after(Some(late), ordered(2, 7, 1), 2, complete, missing).stores == Map(store(7) -> complete, store(1) -> missing)),
      "of a store that was not wanted for a while" ->
        (after(Some(dropped), ordered(4, 1, 7), 1, complete, complete).stores == Map(store(7) -> missing)),
      "of an executor that begins anew" -> after(Some(known), first, -1).stores.isEmpty,
      "of one without an order" -> known.keepOnly(None).stores.isEmpty).collectFirst { case (what, false) => what }.orNull
  }

  private def store(partition: Int) = StateStoreId("/checkpoint/state", 0, partition)

  private def ordered(id: Long, partitions: Int*) =
    Standbys.Ordered(StandbyOrder(id, IndexedSeq.empty), partitions.map(store).toIndexedSeq, partitions.toSet)

  private def after(before: Option[Standbys.Reported], ordered: Standbys.Ordered, id: Long, stores: StandbyProgress*) =
    Standbys.Reported.after(before, ordered, StandbyReport("run", "1", id, stores), nowNs = 0)
}
