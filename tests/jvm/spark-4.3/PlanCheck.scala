package org.apache.spark.sql.binshift

import org.apache.spark.sql.catalyst.expressions.{Expression, SortOrder}
import org.apache.spark.sql.catalyst.plans.physical._
import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.execution.exchange.{Exchange, ReusedExchangeExec, ShuffleExchangeLike}
import org.apache.spark.sql.execution.joins.BaseJoinExec
import org.apache.spark.sql.execution.python.streaming.{FlatMapGroupsInPandasWithStateExec, TransformWithStateInPySparkExec}
import org.apache.spark.sql.execution.streaming.operators.stateful._
import org.apache.spark.sql.execution.streaming.operators.stateful.flatmapgroupswithstate.FlatMapGroupsWithStateExec
import org.apache.spark.sql.execution.streaming.operators.stateful.join.StreamingSymmetricHashJoinExec
import org.apache.spark.sql.execution.streaming.operators.stateful.transformwithstate.TransformWithStateExec

/**
 * Checks that each operator of a plan finds its rows where it looks for them.
 *
 * @param owners     owner of each bin
 * @param binned     ids of the operators whose rows have to follow the table
 * @param partitions number of state partitions
 */
final class PlanCheck(owners: Array[Int], binned: Set[Long], partitions: Int) {
  import RowPlacement.sameKeys

  private val placement = new RowPlacement(owners)

  /** The errors, one per line. */
  def of(plan: SparkPlan): Seq[String] =
    (plan +: plan.subqueriesAll).flatMap(p => p.collect { case o => inputs(o) }.flatten ++ parts(p))

  private def inputs(op: SparkPlan): Seq[String] = places(op) ++ orders(op)

  private def orders(op: SparkPlan): Seq[String] = op.children.zip(op.requiredChildOrdering).zipWithIndex.collect {
    case ((child, required), i) if isRead(op, i) && !SortOrder.orderingSatisfies(child.outputOrdering, required) =>
      s"sorted: input $i of ${name(op)} is not sorted by ${required.mkString(", ")}"
  }

  private def isRead(op: SparkPlan, input: Int): Boolean = op match {
    case s: StatefulOperator if s.stateInfo.exists(i => binned(i.operatorId)) => states(s)(input).isDefined
    case _ => true
  }

  private def places(op: SparkPlan): Seq[String] = op match {
    case s: StatefulOperator if s.stateInfo.exists(i => binned(i.operatorId)) =>
      states(s).zipWithIndex.collect {
        case (Some(keys), i) if !follows(placement.of(op.children(i)), keys) =>
          s"state: input $i of ${name(op)} does not follow the table by ${keys.mkString(", ")}: ${placement.of(op.children(i))}"
      }
    case _ => clusters(op)
  }

  private def follows(placed: Placed, keys: Seq[Expression]): Boolean =
    placed.partitions.contains(partitions) && (partitions == 1 ||
      placed.facts.exists(f => f.by == ByTable && f.hasNulls && sameKeys(f.keys, keys)))

  /** The columns by which each input's state is kept; `None` for an input that is not read. */
  private def states(op: StatefulOperator): Seq[Option[Seq[Expression]]] = op match {
    case s: StateStoreSaveExec => Seq(Some(s.keyExpressions))
    case r: StateStoreRestoreExec => Seq(Some(r.keyExpressions))
    case s: SessionWindowStateStoreSaveExec => Seq(Some(s.keyWithoutSessionExpressions))
    case r: SessionWindowStateStoreRestoreExec => Seq(Some(r.keyWithoutSessionExpressions))
    case d: BaseStreamingDeduplicateExec => Seq(Some(d.keyExpressions))
    case j: StreamingSymmetricHashJoinExec => Seq(Some(j.leftKeys), Some(j.rightKeys))
    case f: FlatMapGroupsWithStateExec =>
      Seq(Some(f.groupingAttributes), Option.when(f.hasInitialState)(f.initialStateGroupAttrs))
    case f: FlatMapGroupsInPandasWithStateExec => Seq(Some(f.groupingAttributes))
    case t: TransformWithStateExec =>
      Seq(Some(t.groupingAttributes), Option.when(t.hasInitialState)(t.initialStateGroupingAttrs))
    case t: TransformWithStateInPySparkExec =>
      Seq(Some(t.groupingAttributes), Option.when(t.hasInitialState)(t.initialStateGroupingAttrs))
    case other => throw new IllegalStateException(s"by what is the state of ${other.getClass} kept?")
  }

  /** Equal keys have to be in one partition, which has the same number in all inputs. */
  private def clusters(op: SparkPlan): Seq[String] = {
    val isJoin = op.isInstanceOf[BaseJoinExec]
    // Only in a join nulls can be anywhere, as they equal nothing.
    def placedOf(child: SparkPlan) = {
      val placed = placement.of(child)
      placed.copy(facts = placed.facts.filter(_.hasNulls || isJoin))
    }
    val all = op.children.map(placedOf).zip(op.requiredChildDistribution)
    val apart = all.zipWithIndex.collect {
      case ((placed, AllTuples), i) if !placed.isSingle => s"all rows: input $i of ${name(op)} has $placed"
      case ((placed, ClusteredBy(keys)), i) if !placed.isSingle && clustering(placed, keys).isEmpty =>
        s"clustered: input $i of ${name(op)} is not in one place by ${keys.mkString(", ")}: $placed"
    }
    val side = all.collect { case (placed, ClusteredBy(keys)) => (placed, keys) }
    val together = side.map { case (placed, keys) => clustering(placed, keys) }
    val numbers = side.map(_._1.partitions)
    val isOne = side.size < 2 || side.forall(_._1.isSingle) ||
      numbers.distinct.size == 1 && together.reduce(_ intersect _).nonEmpty
    if (isOne) apart else apart :+ s"together: inputs of ${name(op)} are apart: ${side.mkString("; ")}"
  }

  private object ClusteredBy {
    def unapply(d: Distribution): Option[Seq[Expression]] = d match {
      case c: ClusteredDistribution => Some(c.clustering)
      case s: StatefulOpClusteredDistribution => Some(s.expressions)
      case _ => None
    }
  }

  /** The placers, and the subsets of `keys`, that bring equal keys into one partition. */
  private def clustering(placed: Placed, keys: Seq[Expression]): Set[(Placer, Seq[Int])] = placed.facts.flatMap { f =>
    val places = f.keys.map(k => keys.indexWhere(_.semanticEquals(k)))
    Option.when(places.forall(_ >= 0))(f.by -> places)
  }.toSet

  /** All of a stage with a binned operator is routed, and no other stage is. */
  private def parts(plan: SparkPlan): Seq[String] = if (partitions == 1) Nil
  else {
    val tops = plan +: plan.collect { case e: Exchange => e.child }
    tops.flatMap { top =>
      val (ops, exchanges) = stage(top)
      val isRouted = ops.exists { case s: StatefulOperator => s.stateInfo.exists(i => binned(i.operatorId)); case _ => false }
      exchanges.flatMap { e =>
        val placers = placement.of(e).facts.map(_.by).toSet
        if (isRouted && placers == Set(ByRemainder(partitions))) Some(s"in part: ${name(e)} is not routed")
        else if (!isRouted && placers == Set(ByTable)) Some(s"in part: ${name(e)} is routed, and its stage is not")
        else None
      }
    }
  }

  private def stage(top: SparkPlan): (Seq[SparkPlan], Seq[SparkPlan]) = top match {
    case e: ShuffleExchangeLike => (Nil, Seq(e))
    case r: ReusedExchangeExec => (Nil, if (r.child.isInstanceOf[ShuffleExchangeLike]) Seq(r.child) else Nil)
    case _: Exchange => (Nil, Nil)
    case op =>
      val below = op.children.map(stage)
      (op +: below.flatMap(_._1), below.flatMap(_._2))
  }

  private def name(op: SparkPlan): String = op.simpleString(8)
}
