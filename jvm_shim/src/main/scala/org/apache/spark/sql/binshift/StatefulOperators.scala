package org.apache.spark.sql.binshift

import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.execution.streaming.operators.stateful.{StatefulOperator, StateStoreSaveExec, StateStoreWriter, StreamingDeduplicateExec, StreamingDeduplicateWithinWatermarkExec, StreamingGlobalLimitExec}
import org.apache.spark.sql.execution.streaming.state.binshift.{OperatorLayout, Storage}

/** Which stateful operators a plan has, and how each stores its state. */
private[binshift] object StatefulOperators {

  /** The operators that write state; those that only read it share the writer's id. */
  def writers(plan: SparkPlan): Seq[StateStoreWriter] = plan.collect {
    case op: StateStoreWriter if op.stateInfo.isDefined => op
  }

  def idOf(op: StatefulOperator): Long = op.getStateInfo.operatorId

  def layoutOf(op: StateStoreWriter): OperatorLayout = OperatorLayout(op.shortName, storageOf(op))

  def isBinned(op: StateStoreWriter): Boolean = storageOf(op) == Storage.Binned

  /**
   * Binned are the operators whose state key consists of just the columns that their exchange hashes.
   * Without grouping columns there is one partition, whatever the number of state partitions.
   */
  private def storageOf(op: StateStoreWriter): Storage = op match {
    case save: StateStoreSaveExec =>
      if (save.keyExpressions.isEmpty) Storage.Single else Storage.Binned
    case _: StreamingDeduplicateExec | _: StreamingDeduplicateWithinWatermarkExec => Storage.Binned
    case _: StreamingGlobalLimitExec => Storage.Single
    case _ => Storage.Plain
  }
}
