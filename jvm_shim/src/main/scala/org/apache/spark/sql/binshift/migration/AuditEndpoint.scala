package org.apache.spark.sql.binshift.migration

import org.apache.spark.sql.execution.streaming.state.binshift.migration.AuditReport

/**
 * Receives the results of audits from executors. Results of tasks would bring them later, and not at all while a query has no
 * data.
 */
private[migration] object AuditEndpoint extends RunEndpoint[Audits](AuditReport.EndpointName) {
  override protected def answer(message: Array[Byte]): Array[Byte] = {
    val report = AuditReport.parse(message)
    listenerOf(report.runId).foreach(_.hear(report))
    Array.emptyByteArray
  }
}
