package org.apache.spark.sql.binshift.realtime

import org.apache.spark.sql.binshift.internals.SupportedSpark
import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.execution.streaming.RealTimeTrigger
import org.apache.spark.sql.execution.streaming.runtime.{MicroBatchExecution, StreamExecution}
import org.apache.spark.sql.execution.streaming.state.binshift.BinshiftException

/** Real-time mode before Spark 4.3, where only queries without state can use it. */
private[binshift] object RealTimeMode {

  def isOf(query: StreamExecution): Boolean = query.trigger.isInstanceOf[RealTimeTrigger]

  /** Does nothing, because no query in this mode has state. */
  def begin(query: StreamExecution): Unit = ()

  /** Refuses a plan with stateful operators. */
  def requireAllowed(query: MicroBatchExecution, plan: SparkPlan): Unit =
    throw BinshiftException.unsupportedVersion(
      s"query ${query.id} is stateful and in real-time mode, which Spark ${SupportedSpark.Minor} has for queries without " +
        "state only; use Spark 4.3, or another trigger")

  def protocolOf(query: MicroBatchExecution): EpochProtocol = new LoggedAhead(query)
}
