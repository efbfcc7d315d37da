package org.apache.spark.sql.binshift.routing

import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.execution.streaming.operators.stateful.{StatefulOperator, StatefulOperatorStateInfo}
import org.apache.spark.sql.execution.streaming.state.binshift.checkpoint.CheckpointIds
import org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution

/**
 * Gives new partitions a checkpoint id, under checkpoint format 2. Spark keeps the id of each partition and hands it to the
 * partition's task. A partition that comes into being has no id, so it gets one that says that it is new, and the executor's store
 * answers with it.
 *
 * Relies on Spark: the ids of all operators are in one mutable map, which the query and the execution of each of its batches share.
 * Spark compares the ids that tasks report with that map. And an operator can be copied with other constructor arguments, like any
 * node of a plan.
 *
 * Called on the stream's thread, before any task of the batch runs.
 */
private[binshift] object NewPartitionIds {
  def assign(query: MicroBatchExecution, plan: SparkPlan, binned: Set[Long]): SparkPlan = {
    val known = query.getLatestExecutionContext().executionPlan.currentStateStoreCkptId
    plan.transformUp {
      case op: StatefulOperator if op.stateInfo.exists(i => binned(i.operatorId) && lacksIds(i)) =>
        val info = op.getStateInfo
        val ids = extended(info.stateStoreCkptIds.get, info.numPartitions)
        known.put(info.operatorId, ids)
        withInfo(op, info.copy(stateStoreCkptIds = Some(ids)))
    }
  }

  private def lacksIds(info: StatefulOperatorStateInfo): Boolean =
    info.stateStoreCkptIds.exists(_.length < info.numPartitions)

  private def extended(ids: Array[Array[String]], n: Int): Array[Array[String]] =
    ids ++ Array.fill(n - ids.length, ids.head.length)(CheckpointIds.NewPartition)

  private def withInfo(op: SparkPlan, info: StatefulOperatorStateInfo): SparkPlan =
    op.makeCopy(op.productIterator.map {
      case Some(_: StatefulOperatorStateInfo) => Some(info)
      case other => other.asInstanceOf[AnyRef]
    }.toArray)
}
