package org.apache.spark.sql.binshift.routing

import org.apache.spark.rdd.{RDD, SQLPartitioningAwareUnionRDD}
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.Attribute
import org.apache.spark.sql.catalyst.plans.physical.{Partitioning, UnknownPartitioning}
import org.apache.spark.sql.execution.SparkPlan

/**
 * Unites branches that are partitioned alike, partition by partition.
 *
 * Stands for Spark's `UnionExec` in routed stages, because that one compares the partitioning of its
 * branches again when it runs, and takes branches that follow a routing table for partitioned unlike.
 */
private[binshift] final case class CoPartitionedUnionExec(
    output: Seq[Attribute], partitions: Int, children: Seq[SparkPlan]) extends SparkPlan {

  override def outputPartitioning: Partitioning = UnknownPartitioning(partitions)

  override protected def doExecute(): RDD[InternalRow] =
    new SQLPartitioningAwareUnionRDD(sparkContext, children.map(_.execute()), partitions)

  override protected def withNewChildrenInternal(newChildren: IndexedSeq[SparkPlan]): SparkPlan =
    copy(children = newChildren)
}
