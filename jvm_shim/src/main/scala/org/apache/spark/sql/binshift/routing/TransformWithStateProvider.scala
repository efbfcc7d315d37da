package org.apache.spark.sql.binshift.routing

import org.apache.spark.sql.binshift.SparkInternals
import org.apache.spark.sql.catalyst.encoders.ExpressionEncoder
import org.apache.spark.sql.catalyst.expressions.{Attribute, Expression}
import org.apache.spark.sql.catalyst.plans.logical.TransformWithStateInPySpark
import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.execution.python.streaming.TransformWithStateInPySparkExec
import org.apache.spark.sql.execution.streaming.operators.stateful.StatefulOperatorStateInfo
import org.apache.spark.sql.execution.streaming.operators.stateful.transformwithstate.TransformWithStateExec
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.streaming.{OutputMode, StatefulProcessor, TimeMode}
import org.apache.spark.sql.types.StructType

/**
 * Lets `transformWithState` run with binshift's provider.
 *
 * Spark's operator checks the provider's class name against its own one only. The operators of a plan
 * are replaced by the subclasses below, which accept binshift's provider as well and are otherwise the
 * same. They have the constructor parameters of what they extend, because Spark copies plan nodes by
 * calling the constructor with the fields of the case class; and they equal no operator of Spark's,
 * because a plan keeps the children that equal the new ones.
 */
private[binshift] object TransformWithStateProvider {
  def accept(plan: SparkPlan): SparkPlan = plan.transformUp {
    case op: TransformWithStateExec if op.getClass == classOf[TransformWithStateExec] =>
      AcceptingTransformWithState.of(op)
    case op: TransformWithStateInPySparkExec if op.getClass == classOf[TransformWithStateInPySparkExec] =>
      AcceptingTransformWithStateInPySpark.of(op)
  }
}

/** The operator of the JVM API. */
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
    initialState) {

  override def validateStateStoreProvider(isStreaming: Boolean): Unit =
    if (!SparkInternals.isBinshiftProvider(conf.getConf(SQLConf.STATE_STORE_PROVIDER_CLASS))) {
      super.validateStateStoreProvider(isStreaming)
    }

  override protected def withNewChildrenInternal(newLeft: SparkPlan, newRight: SparkPlan): TransformWithStateExec =
    AcceptingTransformWithState.of(super.withNewChildrenInternal(newLeft, newRight))

  override def canEqual(other: Any): Boolean = other.isInstanceOf[AcceptingTransformWithState]
  override def equals(other: Any): Boolean = canEqual(other) && super.equals(other)
  override def hashCode(): Int = super.hashCode()
}

private[binshift] object AcceptingTransformWithState {
  def of(op: TransformWithStateExec): AcceptingTransformWithState =
    new AcceptingTransformWithState(
      op.keyDeserializer, op.valueDeserializer, op.groupingAttributes, op.dataAttributes,
      op.statefulProcessor, op.timeMode, op.outputMode, op.keyEncoder, op.outputObjAttr, op.stateInfo,
      op.batchTimestampMs, op.prevBatchTimestampMs, op.eventTimeWatermarkForLateEvents,
      op.eventTimeWatermarkForEviction, op.child, op.isStreaming, op.isRealTimeMode, op.hasInitialState,
      op.initialStateGroupingAttrs, op.initialStateDataAttrs, op.initialStateDeserializer, op.initialState)
}

/** The operator of both Python APIs. */
private[binshift] class AcceptingTransformWithStateInPySpark(
    functionExpr: Expression,
    groupingAttributes: Seq[Attribute],
    output: Seq[Attribute],
    outputMode: OutputMode,
    timeMode: TimeMode,
    stateInfo: Option[StatefulOperatorStateInfo],
    batchTimestampMs: Option[Long],
    prevBatchTimestampMs: Option[Long],
    eventTimeWatermarkForLateEvents: Option[Long],
    eventTimeWatermarkForEviction: Option[Long],
    userFacingDataType: TransformWithStateInPySpark.UserFacingDataType.Value,
    child: SparkPlan,
    isStreaming: Boolean,
    hasInitialState: Boolean,
    initialState: SparkPlan,
    initialStateGroupingAttrs: Seq[Attribute],
    initialStateSchema: StructType)
  extends TransformWithStateInPySparkExec(
    functionExpr, groupingAttributes, output, outputMode, timeMode, stateInfo, batchTimestampMs,
    prevBatchTimestampMs, eventTimeWatermarkForLateEvents, eventTimeWatermarkForEviction,
    userFacingDataType, child, isStreaming, hasInitialState, initialState, initialStateGroupingAttrs,
    initialStateSchema) {

  override def validateStateStoreProvider(isStreaming: Boolean): Unit =
    if (!SparkInternals.isBinshiftProvider(conf.getConf(SQLConf.STATE_STORE_PROVIDER_CLASS))) {
      super.validateStateStoreProvider(isStreaming)
    }

  override protected def withNewChildrenInternal(newLeft: SparkPlan, newRight: SparkPlan): TransformWithStateInPySparkExec =
    AcceptingTransformWithStateInPySpark.of(super.withNewChildrenInternal(newLeft, newRight))

  override def canEqual(other: Any): Boolean = other.isInstanceOf[AcceptingTransformWithStateInPySpark]
  override def equals(other: Any): Boolean = canEqual(other) && super.equals(other)
  override def hashCode(): Int = super.hashCode()
}

private[binshift] object AcceptingTransformWithStateInPySpark {
  def of(op: TransformWithStateInPySparkExec): AcceptingTransformWithStateInPySpark =
    new AcceptingTransformWithStateInPySpark(
      op.functionExpr, op.groupingAttributes, op.output, op.outputMode, op.timeMode, op.stateInfo,
      op.batchTimestampMs, op.prevBatchTimestampMs, op.eventTimeWatermarkForLateEvents,
      op.eventTimeWatermarkForEviction, op.userFacingDataType, op.child, op.isStreaming, op.hasInitialState,
      op.initialState, op.initialStateGroupingAttrs, op.initialStateSchema)
}
