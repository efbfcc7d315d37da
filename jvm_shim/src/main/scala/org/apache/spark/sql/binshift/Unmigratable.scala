package org.apache.spark.sql.binshift

import org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution
import org.apache.spark.sql.execution.streaming.state.binshift.Layout

/** Why a query's state cannot be moved, in words for its user. Such a query runs; it is not rescaled. */
private[binshift] object Unmigratable {
  def reasons(layout: Layout, query: MicroBatchExecution): Seq[String] = {
    val operators = layout.unsupported.map(o => s"operator ${o.name} cannot migrate yet")
    val realTime = Option.when(StatefulOperators.isRealTime(query.trigger))(
      "a query in real-time mode cannot migrate, since its batches have no boundary that is planned ahead")
    realTime.toSeq ++ operators
  }
}
