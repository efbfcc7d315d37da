package org.apache.spark.sql.binshift.routing

import org.apache.spark.rdd.{RDD, SQLPartitioningAwareUnionRDD}
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.Attribute
import org.apache.spark.sql.catalyst.plans.physical.{Partitioning, UnknownPartitioning}
import org.apache.spark.sql.execution.SparkPlan

/**
 * Unites branches that are partitioned alike, partition by partition.
 *
 * Replaces Spark's `UnionExec` in routed stages. `UnionExec` compares the partitioning of its branches again when it runs, and
 * considers branches that follow a routing table to be partitioned differently.
 */
private[binshift] final case class CoPartitionedUnionExec(
    output: Seq[Attribute], partitions: Int, children: Seq[SparkPlan]) extends SparkPlan {

  override def outputPartitioning: Partitioning = UnknownPartitioning(partitions)

  override protected def doExecute(): RDD[InternalRow] =
    new SQLPartitioningAwareUnionRDD(sparkContext, children.map(_.execute()), partitions)

  override protected def withNewChildrenInternal(newChildren: IndexedSeq[SparkPlan]): SparkPlan =
    copy(children = newChildren)
}
