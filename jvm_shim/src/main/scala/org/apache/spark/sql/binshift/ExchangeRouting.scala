package org.apache.spark.sql.binshift

import org.apache.spark.sql.catalyst.expressions.{DirectShufflePartitionID, Expression, GetArrayItem, Literal}
import org.apache.spark.sql.catalyst.plans.physical.{ClusteredDistribution, Distribution, HashPartitioning, Partitioning, ShufflePartitionIdPassThrough, SinglePartition}
import org.apache.spark.sql.catalyst.util.GenericArrayData
import org.apache.spark.sql.execution.{SortExec, SparkPlan}
import org.apache.spark.sql.execution.exchange.ShuffleExchangeExec
import org.apache.spark.sql.execution.streaming.operators.stateful.StatefulOperator
import org.apache.spark.sql.execution.streaming.state.binshift.{BinshiftException, KeyBins, OrderByBinExec, RoutingTable}
import org.apache.spark.sql.types.{ArrayType, IntegerType}

/**
 * Rewrites the exchanges that feed binned operators so that rows go where the routing table says. A
 * pure function of the plan; everything else in the plan stays untouched.
 *
 * The exchange of an operator is the first one below it. It is found by position and not by its
 * origin, since an exchange of the user's own `repartition` with fitting keys is reused by Spark, and
 * operators with the same keys share one.
 *
 * @param arriving bins whose rows come after those of all others
 * @param binned   ids of the operators with binned storage
 */
private[binshift] final class ExchangeRouting(table: RoutingTable, arriving: Set[Int], binned: Set[Long]) {

  /** One literal for all exchanges: generated code holds it by reference, so a new table compiles nothing. */
  private val owners = Literal(
    new GenericArrayData(table.assignment.toArray), ArrayType(IntegerType, containsNull = false))

  def apply(plan: SparkPlan): SparkPlan = plan match {
    case op: StatefulOperator if op.stateInfo.exists(i => binned(i.operatorId)) =>
      val inputs = StatefulOperators.routedInputs(op)
      withChildren(op, op.children.map(c => if (inputs.exists(_ eq c)) routeBelow(c, op) else c))
    case join if isCoPartitioned(join) && join.children.exists(exposesRoutedExchange) =>
      routeCoPartitioned(join)
    case other => withChildren(other, other.children.map(apply))
  }

  /**
   * Routes the first exchange on each path down from `op`, and puts the rows that it delivers in the
   * order of their bins.
   *
   * @param inOrder whether a sort lies above, whose order is the one that counts
   */
  private def routeBelow(plan: SparkPlan, op: StatefulOperator, inOrder: Boolean = false): SparkPlan = plan match {
    case exchange: ShuffleExchangeExec =>
      exchange.outputPartitioning match {
        case hash: HashPartitioning if hash.numPartitions == table.partitions =>
          val routed = exchange.copy(
            outputPartitioning = routedPartitioning(hash.expressions), child = apply(exchange.child))
          routed.copyTagsFrom(exchange)
          if (inOrder) routed else OrderByBinExec(hash.expressions, table.bins, arriving, routed)
        case SinglePartition if table.partitions == 1 =>
          withChildren(exchange, Seq(apply(exchange.child)))
        case other => throw cannotRoute(op, s"its exchange is partitioned by $other")
      }
    case leaf if leaf.children.isEmpty =>
      if (table.partitions > 1) throw cannotRoute(op, s"there is no exchange between it and ${leaf.nodeName}")
      leaf
    case other =>
      val sorts = inOrder || other.isInstanceOf[SortExec]
      withChildren(other, other.children.map(routeBelow(_, op, sorts)))
  }

  private def routedPartitioning(keys: Seq[Expression]): Partitioning =
    ShufflePartitionIdPassThrough(
      DirectShufflePartitionID(GetArrayItem(owners, KeyBins.expression(keys, table.bins), failOnError = false)),
      table.partitions)

  /**
   * A join (or co-group) of a batch side with the output of a binned operator, for which Spark planned
   * no exchange on the stream's side because both were hash-partitioned alike. The other side's
   * exchange has to follow the stream's routing; where it has none (a bucketed table), all sides get a
   * hash exchange of their own.
   */
  private def routeCoPartitioned(plan: SparkPlan): SparkPlan = {
    val (routed, others) = plan.children.partition(exposesRoutedExchange)
    if (others.forall(hashExchanges(_).nonEmpty)) {
      withChildren(plan, plan.children.map(c => if (routed.exists(_ eq c)) apply(c) else followRouting(c)))
    } else {
      val exchanged = plan.children.zip(plan.requiredChildDistribution).map {
        case (child, required) => exchangeBelowSort(apply(child), required)
      }
      plan.withNewChildren(exchanged)
    }
  }

  /** The first exchange on each path down, if it is one that can follow the routing table. */
  private def hashExchanges(plan: SparkPlan): Seq[ShuffleExchangeExec] = plan match {
    case exchange: ShuffleExchangeExec => exchange.outputPartitioning match {
      case hash: HashPartitioning if hash.numPartitions == table.partitions => Seq(exchange)
      case _ => Nil
    }
    case other => other.children.flatMap(hashExchanges)
  }

  private def followRouting(plan: SparkPlan): SparkPlan = plan match {
    case exchange: ShuffleExchangeExec => exchange.outputPartitioning match {
      case hash: HashPartitioning if hash.numPartitions == table.partitions =>
        val routed = exchange.copy(outputPartitioning = routedPartitioning(hash.expressions))
        routed.copyTagsFrom(exchange)
        routed
      case _ => exchange
    }
    case other => withChildren(other, other.children.map(followRouting))
  }

  private def exchangeBelowSort(plan: SparkPlan, required: Distribution): SparkPlan = plan match {
    case sort: SortExec => sort.withNewChildren(Seq(exchangeBelowSort(sort.child, required)))
    case other => ShuffleExchangeExec(required.createPartitioning(table.partitions), other)
  }

  private def isCoPartitioned(plan: SparkPlan): Boolean = plan match {
    case _: StatefulOperator => false
    case other => other.children.size > 1 && table.partitions > 1 &&
      other.requiredChildDistribution.forall(_.isInstanceOf[ClusteredDistribution])
  }

  /** Whether rows reach the top of `plan` from a binned operator without another exchange. */
  private def exposesRoutedExchange(plan: SparkPlan): Boolean = plan match {
    case _: ShuffleExchangeExec => false
    case op: StatefulOperator if op.stateInfo.exists(i => binned(i.operatorId)) => true
    case other => other.children.exists(exposesRoutedExchange)
  }

  private def withChildren(plan: SparkPlan, children: Seq[SparkPlan]): SparkPlan =
    if (children.corresponds(plan.children)(_ eq _)) plan else plan.withNewChildren(children)

  private def cannotRoute(op: StatefulOperator, reason: String): BinshiftException =
    BinshiftException.unsupportedOperator(
      s"operator ${op.getStateInfo.operatorId} (${op.asInstanceOf[SparkPlan].nodeName}) cannot be " +
        s"routed: $reason; put a repartition by the grouping columns in front of it, or run this query " +
        "on Spark's own provider")
}
