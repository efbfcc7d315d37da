package org.apache.spark.sql.binshift.routing

import org.apache.spark.sql.catalyst.expressions.{DirectShufflePartitionID, Expression, Literal, UnsafeArrayData}
import org.apache.spark.sql.catalyst.plans.physical.{Distribution, Partitioning, ShufflePartitionIdPassThrough, UnspecifiedDistribution}
import org.apache.spark.sql.execution.{SortExec, SparkPlan, UnionExec}
import org.apache.spark.sql.execution.exchange.{Exchange, ShuffleExchangeExec}
import org.apache.spark.sql.execution.streaming.operators.stateful.StatefulOperator
import org.apache.spark.sql.execution.streaming.state.binshift.routing.{NoteKeysExec, OrderByBinExec, RoutingTable}
import org.apache.spark.sql.types.{ArrayType, IntegerType}

/**
 * Rewrites the stages with binned operators so that rows go where the routing table says. A pure function of the plan.
 *
 * A stage is the part of a plan between exchanges. Rows of two inputs meet within a stage and nowhere else. Spark's plan of a stage
 * is right for any function from a hash to one of n partitions, as long as everything that is partitioned by hash uses the same
 * function. So in a stage with a binned operator, every hash partitioning into n partitions is replaced, wherever it comes from (see
 * [[HashSources]]), and all other stages stay as they are. Nothing has to be known about the operators in between.
 *
 * Relies on Spark: inputs that meet in a stage by hash have the same number of partitions. Inputs that are partitioned in another
 * way, or into another number of partitions, don't meet any other.
 *
 * @param arriving  bins that have a new owner at this epoch; their rows come after those of all other bins
 * @param onTheWay  bins that may come on demand; their rows come last as well
 * @param binned    ids of the operators with binned storage
 * @param isOrdered whether operators take their rows in the order of bins, for which some rows are held back
 */
private[binshift] final class ExchangeRouting(
    table: RoutingTable, arriving: Set[Int], onTheWay: Set[Int], binned: Set[Long], isOrdered: Boolean) {
  private val late = arriving ++ onTheWay
  private val sources = new HashSources(table.partitions)

  /**
   * One literal for all exchanges. Generated code refers to it, so that a new table doesn't need new code. In the binary of a task,
   * it takes four bytes a bin, and is a single object.
   */
  private val owners = Literal(
    UnsafeArrayData.fromPrimitiveArray(table.owners), ArrayType(IntegerType, containsNull = false))

  /** True if the table places each key where Spark's hash partitioning would, as before the first migration. */
  private val isOfSpark =
    table.bins % table.partitions == 0 && table.owners.indices.forall(bin => table.owners(bin) == bin % table.partitions)

  /** @param top the topmost operator of a stage */
  def apply(top: SparkPlan): SparkPlan =
    if (holdsBinned(top)) place(top, Above()) else descend(top)

  private def holdsBinned(plan: SparkPlan): Boolean = plan match {
    case _: Exchange => false
    case op: StatefulOperator if isBinned(op) => true
    case other => other.children.exists(holdsBinned)
  }

  /** Leaves a stage as it is, and goes on to the stages below. */
  private def descend(plan: SparkPlan): SparkPlan = plan match {
    case exchange: Exchange => withChildren(exchange, exchange.children.map(apply))
    case other => withChildren(other, other.children.map(descend))
  }

  private def place(plan: SparkPlan, above: Above): SparkPlan = plan match {
    case exchange: ShuffleExchangeExec =>
      val rest = withChildren(exchange, exchange.children.map(apply)).asInstanceOf[ShuffleExchangeExec]
      sources.keysOf(exchange).fold[SparkPlan](rest)(keys => routed(rest, keys, above))
    case exchange: Exchange =>
      withChildren(exchange, exchange.children.map(apply))
    case leaf if leaf.children.isEmpty =>
      sources.keysOf(leaf).filter(_ => above.reliesOn && !isOfSpark).fold(leaf)(exchanged(leaf, _))
    case op: StatefulOperator if isBinned(op) =>
      val inputs = StatefulOperators.routedInputs(op)
      val isByKey = above.isByKey.getOrElse(true) && StatefulOperators.looksUpByKey(op)
      val forgetting = above.forgetting ++ Option.when(StatefulOperators.scansToForget(op))(StatefulOperators.idOf(op))
      val below = Above(reliesOn = true, isInOrder = isOrdered, isByKey = Some(isByKey), forgetting = forgetting)
      val keys = StatefulOperators.keysThatMayChange(op)
      withChildren(op,
        op.children.zipWithIndex.map { case (c, i) =>
          if (!inputs.exists(_ eq c)) c
          else keys.lift(i).fold(place(c, below))(NoteKeysExec(_, StatefulOperators.idOf(op), place(c, below)))
        })
    case union: UnionExec if table.partitions > 1 && sources.areAlike(union) =>
      CoPartitionedUnionExec(union.output, table.partitions, union.children.map(place(_, above.copy(reliesOn = true))))
    case other =>
      val sorts = other.isInstanceOf[SortExec]
      withChildren(other,
        other.children.zip(other.requiredChildDistribution).map { case (child, required) =>
          place(child, above.copy(reliesOn = above.reliesOn || isOfRows(required), isInOrder = above.isInOrder && !sorts))
        })
  }

  private def routed(exchange: ShuffleExchangeExec, keys: Seq[Expression], above: Above): SparkPlan = {
    // A single partition owns all bins.
    val moved = if (table.partitions == 1) exchange else exchange.copy(outputPartitioning = partitioning(keys))
    moved.copyTagsFrom(exchange)
    // If rows aren't held back, as in real-time mode, whole bins come.
    val notesKeys = isOrdered && above.isByKey.contains(true) && onTheWay.nonEmpty
    if (above.isInOrder || notesKeys) OrderByBinExec(keys, table.bins, late, notesKeys, above.forgetting, moved)
    else moved
  }

  /** Shuffles the rows of a leaf that is stored by Spark's hash, and sorts them again if they were sorted. */
  private def exchanged(leaf: SparkPlan, keys: Seq[Expression]): SparkPlan = {
    val moved = ShuffleExchangeExec(partitioning(keys), leaf)
    val order = leaf.outputOrdering.takeWhile(_.references.subsetOf(leaf.outputSet))
    if (order.isEmpty) moved else SortExec(order, global = false, moved)
  }

  private def partitioning(keys: Seq[Expression]): Partitioning =
    ShufflePartitionIdPassThrough(
      DirectShufflePartitionID(RoutedPartition(keys, table.bins, owners)), table.partitions)

  private def isOfRows(required: Distribution): Boolean = required != UnspecifiedDistribution

  private def isBinned(op: StatefulOperator): Boolean = op.stateInfo.exists(i => binned(i.operatorId))

  private def withChildren(plan: SparkPlan, children: Seq[SparkPlan]): SparkPlan =
    if (children.corresponds(plan.children)(_ eq _)) plan else plan.withNewChildren(children)
}

/**
 * Describes what is above a part of the plan.
 *
 * @param reliesOn  whether something relies on how the rows are partitioned
 * @param isInOrder whether a binned operator takes the rows in the order that they have here
 * @param isByKey   whether there are binned operators above, and all of them look up state only by the key of a row, except for
 *                  scans that only remove rows; `None` if there are none
 * @param forgetting ids of the operators that have such scans
 */
private final case class Above(
    reliesOn: Boolean = false, isInOrder: Boolean = false, isByKey: Option[Boolean] = None, forgetting: Set[Long] = Set.empty)
