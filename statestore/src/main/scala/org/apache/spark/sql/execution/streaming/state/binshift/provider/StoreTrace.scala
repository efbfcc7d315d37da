package org.apache.spark.sql.execution.streaming.state.binshift.provider

import org.apache.spark.sql.execution.streaming.state.StateStoreId
import org.apache.spark.sql.execution.streaming.state.binshift.Trace
import org.apache.spark.sql.execution.streaming.state.binshift.routing.{EpochRouting, RoutingTable}

/** Writes the events of a query's store into the trace, if the run has one. Called by the store's task. */
private[provider] final class StoreTrace(storeId: StateStoreId, routing: EpochRouting) {

  /** The database was opened anew. `snapshot` is the version and id of the snapshot that it began with. */
  def opened(version: Long, id: Option[String], isEmpty: Boolean, snapshot: (Long, Option[String])): Unit =
    if (isEmpty) Trace("opened", storeId, "run" -> routing.run, "version" -> version, "empty" -> true)
    else Trace("opened", storeId, "run" -> routing.run, "version" -> version, "id" -> id, "base" -> snapshot._1,
      "base_id" -> snapshot._2)

  /** A version is loaded, and its switch has been made. */
  def loaded(version: Long, id: Option[String], readOnly: Boolean, table: RoutingTable, isTakeover: Boolean): Unit =
    Trace("loaded", storeId, "run" -> routing.run, "version" -> version, "id" -> id, "reads" -> readOnly,
      "entry" -> routing.owners(version + 1).upTo(version).map(_.name.render), "logged_at" -> routing.ranAtMs(version),
      "bins" -> Trace.ranges(table.binsOf.lift(storeId.partitionId).toSeq.flatten), "takeover" -> isTakeover)

  /** The task has committed a version, which the driver may not have done yet. */
  def committed(version: Long, id: Option[String], hasChangelog: Boolean): Unit =
    Trace("committed", storeId, "run" -> routing.run, "version" -> version, "id" -> id, "changelog" -> hasChangelog)
}
