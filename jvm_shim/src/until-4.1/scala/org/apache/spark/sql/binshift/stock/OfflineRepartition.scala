package org.apache.spark.sql.binshift.stock

import org.apache.spark.sql.binshift.internals.StreamLogs.Offsets
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.streaming.runtime.StreamExecution

/** Spark 4.1 has no offline repartition, so there is none to refuse, to undo, or to be taken for a switch. */
private[binshift] object OfflineRepartition {
  def guard(session: SparkSession): Unit = ()

  def undo(query: StreamExecution, latest: Option[(Long, Offsets)]): Boolean = false

  def letStart(query: StreamExecution): Unit = ()
}
