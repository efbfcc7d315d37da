package org.apache.spark.sql.binshift

import org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution
import org.apache.spark.sql.execution.streaming.state.binshift.Layout
import org.apache.spark.sql.internal.SQLConf

/** Why a query's state cannot be moved, in words for its user. Such a query runs; it is not rescaled. */
private[binshift] object Unmigratable {
  def reasons(layout: Layout, query: MicroBatchExecution): Seq[String] = {
    val operators = layout.unsupported.map(o => s"operator ${o.name} cannot migrate yet")
    val version = query.sparkSessionForStream.sessionState.conf
      .getConf(SQLConf.STATE_STORE_CHECKPOINT_FORMAT_VERSION)
    val format = Option.when(version != 1)(
      s"${SQLConf.STATE_STORE_CHECKPOINT_FORMAT_VERSION.key} is $version; only version 1 can migrate yet")
    val realTime = Option.when(StatefulOperators.isRealTime(query.trigger))(
      "a query in real-time mode cannot migrate, since its batches have no boundary that is planned ahead")
    realTime ++: (operators ++ format)
  }
}
