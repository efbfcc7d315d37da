package org.apache.spark.sql.binshift.realtime

import org.apache.spark.sql.catalyst.expressions.{Expression, ExpressionSet}
import org.apache.spark.sql.catalyst.plans.physical.{ClusteredDistribution, Distribution, StatefulOpClusteredDistribution}
import org.apache.spark.sql.execution.{CoalesceExec, SparkPlan, UnionExec}
import org.apache.spark.sql.execution.datasources.v2.RealTimeStreamScanExec
import org.apache.spark.sql.execution.exchange.{Exchange, REPARTITION_BY_COL, REPARTITION_BY_NUM, ShuffleExchangeExec}
import org.apache.spark.sql.execution.streaming.operators.stateful.StatefulOperator

/**
 * How many tasks a batch in real-time mode runs at once, by the number of its state partitions.
 *
 * Relies on Spark: each exchange between a source and the sink is pipelined, so the stages on both sides of it run at the same
 * time. Other exchanges, as of a table that is joined, are not: their stages are over before.
 *
 * @param fixed  tasks of stages whose number does not change
 * @param routed stages that have a task for each state partition
 * @param users  partitions of exchanges of the user's own that hash the keys of such a stage as it needs them: with another
 *               number of state partitions, Spark plans an exchange of its own above each
 */
private[realtime] final case class BatchTasks(fixed: Int, routed: Int, users: Seq[Int]) {
  def needed(n: Int): Int = fixed + users.filter(_ != n).sum + routed * n
}

private[realtime] object BatchTasks {

  def of(plan: SparkPlan, binned: Set[Long]): BatchTasks = new Stages(binned).at(plan)

  private def sum(all: Seq[BatchTasks]): BatchTasks =
    BatchTasks(all.map(_.fixed).sum, all.map(_.routed).sum, all.flatMap(_.users))

  private final class Stages(binned: Set[Long]) {

    /** Of the stage with `top` as its topmost operator, and of those below. */
    def at(top: SparkPlan): BatchTasks = {
      val operators = within(top).collect { case op: StatefulOperator if op.stateInfo.exists(i => binned(i.operatorId)) => op }
      val inputs = within(top).collect { case e: ShuffleExchangeExec if isRealTime(e) => e }
      val below = sum(inputs.map(e => at(e.child)))
      if (operators.isEmpty) sum(Seq(below, BatchTasks(width(top), 0, Nil)))
      else {
        val users = inputs.collect { case e if isOfUser(e) => e.outputPartitioning.numPartitions }
        // With one state partition, what has one partition anyway needs no exchange, and operators of any keys share a stage.
        val isSingle = operators.exists(_.getStateInfo.numPartitions == 1)
        val scans = if (isSingle) within(top).collect { case s: RealTimeStreamScanExec => s.inputPartitions.size }.sum else 0
        sum(Seq(below, BatchTasks(scans, if (isSingle) distributions(operators) else 1, users)))
      }
    }

    /** What of a plan is in the stage of `top`, with the exchanges from which it reads. */
    private def within(top: SparkPlan): Seq[SparkPlan] = top match {
      case exchange: Exchange => Seq(exchange)
      case other => other +: other.children.flatMap(within)
    }

    private def width(plan: SparkPlan): Int = plan match {
      case scan: RealTimeStreamScanExec => scan.inputPartitions.size
      case exchange: Exchange => if (isRealTime(exchange)) exchange.outputPartitioning.numPartitions else 0
      case coalesced: CoalesceExec => math.min(coalesced.numPartitions, width(coalesced.child))
      case union: UnionExec => union.children.map(width).sum
      case other => other.children.map(width).maxOption.getOrElse(0)
    }
  }

  private def isRealTime(plan: SparkPlan): Boolean = plan.exists(_.isInstanceOf[RealTimeStreamScanExec])

  private def isOfUser(exchange: ShuffleExchangeExec): Boolean =
    exchange.shuffleOrigin == REPARTITION_BY_NUM || exchange.shuffleOrigin == REPARTITION_BY_COL

  /** By how many sets of keys the operators of a stage want their rows together. */
  private def distributions(operators: Seq[StatefulOperator]): Int =
    operators.map(op => ExpressionSet(op.requiredChildDistribution.flatMap(keys))).distinct.size

  private def keys(distribution: Distribution): Seq[Expression] = distribution match {
    case d: StatefulOpClusteredDistribution => d.expressions
    case d: ClusteredDistribution => d.clustering
    case _ => Nil
  }
}
