package org.apache.spark.sql.binshift.routing

import org.apache.spark.sql.catalyst.expressions.{DirectShufflePartitionID, Expression, Literal, UnsafeArrayData}
import org.apache.spark.sql.catalyst.plans.physical.{Distribution, Partitioning, ShufflePartitionIdPassThrough, UnspecifiedDistribution}
import org.apache.spark.sql.execution.{SortExec, SparkPlan, UnionExec}
import org.apache.spark.sql.execution.exchange.{Exchange, ShuffleExchangeExec}
import org.apache.spark.sql.execution.streaming.operators.stateful.StatefulOperator
import org.apache.spark.sql.execution.streaming.state.binshift.routing.{NoteKeysExec, OrderByBinExec, RoutingTable}
import org.apache.spark.sql.types.{ArrayType, IntegerType}

/**
 * Rewrites the stages that hold binned operators so that rows go where the routing table says. A pure
 * function of the plan.
 *
 * A stage is what lies between exchanges. Rows of two inputs meet within a stage and nowhere else, and
 * Spark's plan of a stage is right for any function from a hash to one of n partitions, as long as all
 * that is partitioned by hash uses the same one. So a stage with a binned operator has its whole hash
 * partitioning into n replaced, wherever it comes from (see [[HashSources]]), and every other stage is left
 * as it is. Nothing has to be known of the operators in between.
 *
 * Relies on Spark: whatever meets in a stage by hash has the same number of partitions; what is
 * partitioned otherwise, or into another number, meets nothing.
 *
 * @param arriving  bins that have a new owner at this epoch
 * @param onTheWay  bins that may come on demand; their rows come after those of all others, and so do those of `arriving`
 * @param binned    ids of the operators with binned storage
 * @param isOrdered whether operators take their rows in the order of bins, for which some are held back
 */
private[binshift] final class ExchangeRouting(
    table: RoutingTable, arriving: Set[Int], onTheWay: Set[Int], binned: Set[Long], isOrdered: Boolean) {
  private val late = arriving ++ onTheWay
  private val sources = new HashSources(table.partitions)

  /**
   * One literal for all exchanges. Generated code holds it by reference, so a new table compiles nothing;
   * in the binary of a task it takes four bytes a bin, and as many objects as a table has: one.
   */
  private val owners = Literal(
    UnsafeArrayData.fromPrimitiveArray(table.owners), ArrayType(IntegerType, containsNull = false))

  /** Whether the table places each key where Spark's hash partitioning does, as that of a query that never migrated. */
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

  /** A stage that stays as it is, on top of others that may not. */
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
    // Where rows are not held back, as in real-time mode, whole bins come.
    val notesKeys = isOrdered && above.isByKey.contains(true) && onTheWay.nonEmpty
    if (above.isInOrder || notesKeys) OrderByBinExec(keys, table.bins, late, notesKeys, above.forgetting, moved)
    else moved
  }

  /** What is stored where Spark's hash puts it is shuffled, and sorted again if it was sorted. */
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
 * What is above a part of the plan.
 *
 * @param reliesOn  whether something counts on how the rows are partitioned
 * @param isInOrder whether a binned operator takes the rows in the order that they have here
 * @param isByKey   whether all binned operators, of which there is one, look up state by the key of a row and in no other way,
 *                  but for scans that only forget
 * @param forgetting ids of the operators that have such scans
 */
private final case class Above(
    reliesOn: Boolean = false, isInOrder: Boolean = false, isByKey: Option[Boolean] = None, forgetting: Set[Long] = Set.empty)
