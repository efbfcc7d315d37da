package org.apache.spark.sql.binshift.routing

import org.apache.spark.sql.catalyst.expressions.{AttributeSet, Expression}
import org.apache.spark.sql.catalyst.plans.physical.{BroadcastDistribution, ClusteredDistribution, HashPartitioningLike, Partitioning, PartitioningCollection, StatefulOpClusteredDistribution}
import org.apache.spark.sql.execution.{SparkPlan, UnionExec}
import org.apache.spark.sql.execution.exchange.ShuffleExchangeExec
import org.apache.spark.sql.execution.streaming.operators.stateful.{StatefulOperator, StateStoreWriter}
import org.apache.spark.sql.execution.streaming.state.binshift.BinshiftException
import org.apache.spark.sql.execution.streaming.state.binshift.checkpoint.Storage

/**
 * Finds the places where rows of a stage get partitioned by hash into `partitions`: exchanges, and leaves that are stored that way
 * (bucketed and cached tables).
 */
private[binshift] final class HashSources(partitions: Int) {

  /** The expressions by which an exchange or a leaf hashes its rows, if it does. */
  def keysOf(source: SparkPlan): Option[Seq[Expression]] = source match {
    case exchange: ShuffleExchangeExec => hashes(exchange.outputPartitioning).headOption.map(_.expressions)
    case leaf => hashes(leaf.outputPartitioning).map(_.expressions)
        .find(keys => AttributeSet.fromAttributeSets(keys.map(_.references)).subsetOf(leaf.outputSet))
  }

  /** True if Spark unites the branches partition by partition, rather than one branch after the other. */
  def areAlike(union: UnionExec): Boolean = hashes(union.outputPartitioning).nonEmpty

  /** Fails if some rows of an operator with binned storage would not follow a routing table. */
  def requireThatRowsFollow(op: StatefulOperator): Unit = {
    val plan = op.asInstanceOf[SparkPlan]
    val inputs = StatefulOperators.routedInputs(op)
    plan.children.zip(plan.requiredChildDistribution).filter(c => inputs.exists(_ eq c._1)).foreach {
      case (child, required) =>
        val keys = required match {
          case stateful: StatefulOpClusteredDistribution => stateful.expressions
          case clustered: ClusteredDistribution => clustered.clustering
          case other => throw cannotRoute(op, s"it has no keys that its rows are distributed by, but asks for $other")
        }
        // In checkpoints of old Spark versions, rows may be distributed by only some of the columns of the state's key.
        if (!child.outputPartitioning.satisfies(StatefulOpClusteredDistribution(keys, partitions))) {
          throw cannotRoute(op,
            s"its rows are partitioned by ${child.outputPartitioning}, and its state by ${keys.mkString(", ")}")
        }
        if (partitions > 1) reasonAgainst(child).foreach(reason => throw cannotRoute(op, reason))
    }
  }

  /** Why some rows reach the top of `plan` without passing such a place. A broadcast input doesn't count, as it partitions nothing. */
  private def reasonAgainst(plan: SparkPlan): Option[String] = plan match {
    case exchange: ShuffleExchangeExec =>
      Option.when(keysOf(exchange).isEmpty)(s"its exchange is partitioned by ${exchange.outputPartitioning}")
    case leaf if leaf.children.isEmpty =>
      Option.when(keysOf(leaf).isEmpty)(s"there is no exchange between it and ${leaf.nodeName}")
    case union: UnionExec if !areAlike(union) =>
      Some("the branches of a union below it are not partitioned alike")
    case other =>
      val inputs = other.children.zip(other.requiredChildDistribution)
        .collect { case (child, required) if !required.isInstanceOf[BroadcastDistribution] => child }
      inputs.flatMap(reasonAgainst).headOption
  }

  private def hashes(partitioning: Partitioning): Seq[HashPartitioningLike] =
    flat(partitioning).collect { case hash: HashPartitioningLike if hash.numPartitions == partitions => hash }

  private def flat(partitioning: Partitioning): Seq[Partitioning] = partitioning match {
    case several: PartitioningCollection => several.partitionings.flatMap(flat)
    case one => Seq(one)
  }

  private def cannotRoute(op: StatefulOperator, reason: String): BinshiftException =
    BinshiftException.unsupportedOperator(
      s"operator ${op.getStateInfo.operatorId} (${op.asInstanceOf[SparkPlan].nodeName}) cannot be " +
        s"routed: $reason; put a repartition by the grouping columns in front of it, or run this query " +
        "on Spark's own provider")
}

private[binshift] object HashSources {

  /** Fails if rows of any operator with binned storage would not follow a routing table. */
  def requireThatRowsFollow(plan: SparkPlan, writers: Seq[StateStoreWriter]): Unit = {
    val binned = writers.filter(StatefulOperators.layoutOf(_).storage == Storage.Binned).map(StatefulOperators.idOf).toSet
    val sources = new HashSources(writers.head.getStateInfo.numPartitions)
    plan.foreach {
      case op: StatefulOperator if op.stateInfo.exists(i => binned(i.operatorId)) => sources.requireThatRowsFollow(op)
      case _ =>
    }
  }
}
