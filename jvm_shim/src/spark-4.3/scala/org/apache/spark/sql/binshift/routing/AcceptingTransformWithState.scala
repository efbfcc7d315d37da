package org.apache.spark.sql.binshift.routing

import org.apache.spark.sql.catalyst.encoders.ExpressionEncoder
import org.apache.spark.sql.catalyst.expressions.{Attribute, Expression}
import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.execution.streaming.operators.stateful.StatefulOperatorStateInfo
import org.apache.spark.sql.execution.streaming.operators.stateful.transformwithstate.TransformWithStateExec
import org.apache.spark.sql.streaming.{OutputMode, StatefulProcessor, TimeMode}

/** The operator of the JVM API, with the parameters of Spark 4.3; see [[TransformWithStateProvider]]. */
private[binshift] class AcceptingTransformWithState(
    keyDeserializer: Expression,
    valueDeserializer: Expression,
    groupingAttributes: Seq[Attribute],
    dataAttributes: Seq[Attribute],
    statefulProcessor: StatefulProcessor[Any, Any, Any],
    timeMode: TimeMode,
    outputMode: OutputMode,
    keyEncoder: ExpressionEncoder[Any],
    outputObjAttr: Attribute,
    stateInfo: Option[StatefulOperatorStateInfo],
    batchTimestampMs: Option[Long],
    prevBatchTimestampMs: Option[Long],
    eventTimeWatermarkForLateEvents: Option[Long],
    eventTimeWatermarkForEviction: Option[Long],
    child: SparkPlan,
    isStreaming: Boolean,
    isRealTimeMode: Boolean,
    hasInitialState: Boolean,
    initialStateGroupingAttrs: Seq[Attribute],
    initialStateDataAttrs: Seq[Attribute],
    initialStateDeserializer: Expression,
    initialState: SparkPlan)
  extends TransformWithStateExec(
    keyDeserializer, valueDeserializer, groupingAttributes, dataAttributes, statefulProcessor, timeMode,
    outputMode, keyEncoder, outputObjAttr, stateInfo, batchTimestampMs, prevBatchTimestampMs,
    eventTimeWatermarkForLateEvents, eventTimeWatermarkForEviction, child, isStreaming, isRealTimeMode,
    hasInitialState, initialStateGroupingAttrs, initialStateDataAttrs, initialStateDeserializer,
    initialState)
  with AcceptingInJvm

private[binshift] object AcceptingTransformWithState {
  def of(op: TransformWithStateExec): AcceptingTransformWithState =
    new AcceptingTransformWithState(
      op.keyDeserializer, op.valueDeserializer, op.groupingAttributes, op.dataAttributes,
      op.statefulProcessor, op.timeMode, op.outputMode, op.keyEncoder, op.outputObjAttr, op.stateInfo,
      op.batchTimestampMs, op.prevBatchTimestampMs, op.eventTimeWatermarkForLateEvents,
      op.eventTimeWatermarkForEviction, op.child, op.isStreaming, op.isRealTimeMode, op.hasInitialState,
      op.initialStateGroupingAttrs, op.initialStateDataAttrs, op.initialStateDeserializer, op.initialState)
}
