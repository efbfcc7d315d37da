package org.apache.spark.sql.binshift.realtime

import org.apache.spark.sql.catalyst.expressions.{Expression, ExpressionSet}
import org.apache.spark.sql.catalyst.plans.logical.{Repartition, RepartitionByExpression}
import org.apache.spark.sql.catalyst.plans.physical._
import org.apache.spark.sql.execution.{CoalesceExec, SparkPlan, UnionExec}
import org.apache.spark.sql.execution.datasources.v2.RealTimeStreamScanExec
import org.apache.spark.sql.execution.exchange.{Exchange, REPARTITION_BY_COL, REPARTITION_BY_NUM, ShuffleExchangeExec}
import org.apache.spark.sql.execution.streaming.operators.stateful.StatefulOperator

/**
 * Computes how many tasks a batch in real-time mode runs at once, given the number of its state partitions.
 *
 * Relies on Spark: each exchange between a source and the sink is pipelined, so the stages on both sides of it run at the same
 * time. Other exchanges, such as that of a joined table, are not: their stages are over before. Spark omits an exchange if its input
 * already has its keys and its number of partitions. So for one number of state partitions, and only for that, the user's exchange
 * may serve for that of the state, or the other way round. An exchange without a number keeps the default number of partitions at
 * the time when the query was defined.
 *
 * @param plan   as Spark made it, with one number of state partitions
 * @param binned ids of the operators whose state follows the routing table
 */
private[realtime] final class BatchTasks(plan: SparkPlan, binned: Set[Long]) {
  import BatchTasks._

  /** Partitions of the user's exchanges above the state that this plan omits, but a plan with another number of partitions needs. */
  private val leftOut: Seq[Int] = {
    val wanted = plan.collectFirst { case p if p.logicalLink.nonEmpty => p.logicalLink.get }.toSeq.flatMap(_.collect {
      case r: RepartitionByExpression => r.numPartitions
      case r: Repartition if r.shuffle => r.numPartitions
    })
    wanted.diff(plan.collect { case e: ShuffleExchangeExec if isOfUser(e) => partitionsOf(e) })
  }

  /** The number of tasks with `n` state partitions. */
  def needed(n: Int): Int = of(plan, n) + leftOut.filter(_ != n).sum

  /** The tasks of the stage whose topmost operator is `top`, and of the stages below. */
  private def of(top: SparkPlan, n: Int): Int = {
    val operators = within(top).collect { case op: StatefulOperator if op.stateInfo.exists(i => binned(i.operatorId)) => op }
    if (operators.isEmpty) below(top, n) + width(top, n)
    else {
      // With one state partition, inputs with one partition need no exchange, and operators with different keys share a stage.
      val isSplit = operators.exists(_.getStateInfo.numPartitions == 1) && n > 1
      val scans = if (isSplit) within(top).collect { case s: RealTimeStreamScanExec => s.inputPartitions.size }.sum else 0
      // The exchanges below a union count once, because Spark unites branches that are partitioned alike partition by partition.
      val users = inputs(top).filter(isOfUser).map(partitionsOf).filter(_ != n).distinct.sum
      val others = inputs(top).map(e => if (!isOfUser(e) && isLeftOut(e, n)) below(e.child, n) else of(e.child, n)).sum
      others + users + scans + n * (if (isSplit) distributions(operators) else 1)
    }
  }

  private def below(top: SparkPlan, n: Int): Int = inputs(top).map(e => of(e.child, n)).sum

  private def width(plan: SparkPlan, n: Int): Int = plan match {
    case scan: RealTimeStreamScanExec => scan.inputPartitions.size
    case exchange: ShuffleExchangeExec if isRealTime(exchange) =>
      if (isOfUser(exchange) && isLeftOut(exchange, n)) 0 else partitionsOf(exchange)
    case _: Exchange => 0
    case coalesced: CoalesceExec => math.min(coalesced.numPartitions, width(coalesced.child, n))
    case union: UnionExec if areAlike(union) => union.children.map(width(_, n)).max
    case union: UnionExec => union.children.map(width(_, n)).sum
    case other => other.children.map(width(_, n)).maxOption.getOrElse(0)
  }
}

private object BatchTasks {

  /** The operators in the stage of `top`, including the exchanges from which it reads. */
  private def within(top: SparkPlan): Seq[SparkPlan] = top match {
    case exchange: Exchange => Seq(exchange)
    case other => other +: other.children.flatMap(within)
  }

  private def inputs(top: SparkPlan): Seq[ShuffleExchangeExec] =
    within(top).collect { case e: ShuffleExchangeExec if isRealTime(e) => e }

  /** True if Spark unites the branches partition by partition, rather than one branch after the other. */
  private def areAlike(union: UnionExec): Boolean = union.outputPartitioning match {
    case _: HashPartitioningLike | SinglePartition => true
    case _ => false
  }

  private def isRealTime(plan: SparkPlan): Boolean = plan.exists(_.isInstanceOf[RealTimeStreamScanExec])

  private def partitionsOf(exchange: ShuffleExchangeExec): Int = exchange.outputPartitioning.numPartitions

  private def isOfUser(exchange: ShuffleExchangeExec): Boolean =
    exchange.shuffleOrigin == REPARTITION_BY_NUM || exchange.shuffleOrigin == REPARTITION_BY_COL

  /** True if Spark omits an exchange with `n` state partitions, because its input or its output has that number of partitions anyway. */
  private def isLeftOut(exchange: ShuffleExchangeExec, n: Int): Boolean = {
    val own = if (isOfUser(exchange)) partitionsOf(exchange) else exchange.child.outputPartitioning.numPartitions
    val below = exchange.child.outputPartitioning
    own == n && (areAlike(exchange.outputPartitioning, below) || !isOfUser(exchange) && below == SinglePartition)
  }

  /** True if both put rows of the same keys together, regardless of the number of partitions. */
  private def areAlike(one: Partitioning, other: Partitioning): Boolean = (one, other) match {
    case (a: HashPartitioning, b: HashPartitioning) =>
      a.expressions.size == b.expressions.size && a.expressions.zip(b.expressions).forall { case (x, y) => x.semanticEquals(y) }
    case (a, b: PartitioningCollection) => b.partitionings.exists(areAlike(a, _))
    case _ => false
  }

  /** The number of different sets of keys by which the operators of a stage are distributed. */
  private def distributions(operators: Seq[StatefulOperator]): Int =
    operators.map(op => ExpressionSet(op.requiredChildDistribution.flatMap(keys))).distinct.size

  private def keys(distribution: Distribution): Seq[Expression] = distribution match {
    case d: StatefulOpClusteredDistribution => d.expressions
    case d: ClusteredDistribution => d.clustering
    case _ => Nil
  }
}
