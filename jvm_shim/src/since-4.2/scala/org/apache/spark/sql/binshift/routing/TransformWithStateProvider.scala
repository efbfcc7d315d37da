package org.apache.spark.sql.binshift.routing

import org.apache.spark.sql.binshift.internals.SparkInternals
import org.apache.spark.sql.catalyst.expressions.{Attribute, Expression}
import org.apache.spark.sql.catalyst.plans.logical.TransformWithStateInPySpark
import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.execution.python.streaming.TransformWithStateInPySparkExec
import org.apache.spark.sql.execution.streaming.operators.stateful.StatefulOperatorStateInfo
import org.apache.spark.sql.execution.streaming.operators.stateful.transformwithstate.TransformWithStateExec
import org.apache.spark.sql.execution.streaming.operators.stateful.transformwithstate.TransformWithStateExecBase
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.streaming.{OutputMode, TimeMode}
import org.apache.spark.sql.types.StructType

/**
 * Lets `transformWithState` run with binshift's provider.
 *
 * Spark's operator accepts only Spark's own provider, by its class name. So the operators of a plan are replaced by the subclasses
 * below, which accept binshift's provider as well and are otherwise the same. They have the constructor parameters of the class
 * that they extend, because Spark copies plan nodes by calling the constructor with the fields of the case class. They never equal
 * one of Spark's operators, because a plan keeps its old children if they equal the new ones.
 */
private[binshift] object TransformWithStateProvider {
  def accept(plan: SparkPlan): SparkPlan = plan.transformUp {
    case op: TransformWithStateExec if op.getClass == classOf[TransformWithStateExec] =>
      AcceptingTransformWithState.of(op)
    case op: TransformWithStateInPySparkExec if op.getClass == classOf[TransformWithStateInPySparkExec] =>
      AcceptingTransformWithStateInPySpark.of(op)
  }
}

/** The common part of the operators below. */
private[binshift] trait AcceptingBinshift extends TransformWithStateExecBase {

  override def validateStateStoreProvider(isStreaming: Boolean): Unit =
    if (!SparkInternals.isBinshiftProvider(conf.getConf(SQLConf.STATE_STORE_PROVIDER_CLASS))) {
      super.validateStateStoreProvider(isStreaming)
    }

  override def canEqual(other: Any): Boolean = other.isInstanceOf[AcceptingBinshift]
  override def equals(other: Any): Boolean = canEqual(other) && super.equals(other)
  override def hashCode(): Int = super.hashCode()
}

/** The operator of the JVM API; its parameters differ between versions of Spark. */
private[binshift] trait AcceptingInJvm extends TransformWithStateExec with AcceptingBinshift {

  override protected def withNewChildrenInternal(newLeft: SparkPlan, newRight: SparkPlan): TransformWithStateExec =
    AcceptingTransformWithState.of(super.withNewChildrenInternal(newLeft, newRight))
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
    initialStateSchema)
  with AcceptingBinshift {

  override protected def withNewChildrenInternal(newLeft: SparkPlan, newRight: SparkPlan): TransformWithStateInPySparkExec =
    AcceptingTransformWithStateInPySpark.of(super.withNewChildrenInternal(newLeft, newRight))
}

private[binshift] object AcceptingTransformWithStateInPySpark {
  def of(op: TransformWithStateInPySparkExec): AcceptingTransformWithStateInPySpark =
    new AcceptingTransformWithStateInPySpark(
      op.functionExpr, op.groupingAttributes, op.output, op.outputMode, op.timeMode, op.stateInfo,
      op.batchTimestampMs, op.prevBatchTimestampMs, op.eventTimeWatermarkForLateEvents,
      op.eventTimeWatermarkForEviction, op.userFacingDataType, op.child, op.isStreaming, op.hasInitialState,
      op.initialState, op.initialStateGroupingAttrs, op.initialStateSchema)
}
