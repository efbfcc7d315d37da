package org.apache.spark.sql.binshift.migration

import org.apache.spark.sql.execution.streaming.state.binshift.shipping.{StandbyAnswer, StandbyReport, StandbyStores}

/**
 * Receives messages of executors about how far their standbys have come, and answers which standbys are wanted. Each executor sends one
 * once an interval, and when a standby has become complete or has failed.
 */
private[migration] object StandbyEndpoint extends RunEndpoint[StandbyListener](StandbyStores.EndpointName) {
  override protected def answer(message: Array[Byte]): Array[Byte] = {
    val report = StandbyReport.parse(message)
    listenerOf(report.runId).flatMap(_.answer(report)).fold(StandbyAnswer.End)(_.toBytes)
  }
}

/** Answers for a run of a query. */
private[migration] trait StandbyListener {
  /** `None` if the run has ended. */
  def answer(report: StandbyReport): Option[StandbyAnswer]
}
