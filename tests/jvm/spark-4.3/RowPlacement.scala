package org.apache.spark.sql.binshift

import org.apache.spark.sql.binshift.routing.{CoPartitionedUnionExec, RoutedPartition}
import org.apache.spark.sql.catalyst.expressions._
import org.apache.spark.sql.catalyst.plans._
import org.apache.spark.sql.catalyst.plans.physical._
import org.apache.spark.sql.catalyst.plans.physical.{Partitioning => SparkPartitioning}
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.execution._
import org.apache.spark.sql.execution.aggregate.BaseAggregateExec
import org.apache.spark.sql.execution.exchange._
import org.apache.spark.sql.execution.joins._
import org.apache.spark.sql.execution.streaming.operators.stateful.join.StreamingSymmetricHashJoinExec
import org.apache.spark.sql.types.IntegerType

/** A function from the hash of some keys to a partition. */
sealed trait Placer
/** The routing table. */
case object ByTable extends Placer
/** Spark's own way: the remainder of a division. */
final case class ByRemainder(partitions: Int) extends Placer

/**
 * A row is in the partition that `by` makes of the hash of `keys`.
 *
 * @param hasNulls whether also one with a key that is null, rather than anywhere
 */
final case class Fact(by: Placer, keys: Seq[Expression], hasNulls: Boolean = true)

/**
 * The known facts about the places of an operator's rows.
 *
 * @param partitions  the number of partitions, if that is known
 * @param facts       facts that hold for all rows
 * @param isBroadcast whether each task has all rows
 */
final case class Placed(partitions: Option[Int], facts: Seq[Fact], isBroadcast: Boolean = false) {
  def isSingle: Boolean = partitions.contains(1)
}

/**
 * Derives from a physical plan alone in which partition each row is, from the leaves to the top.
 *
 * Facts come from exchanges, and from leaves that say how they are stored. Whether an exchange follows the table is found
 * out by computing partitions of many hashes. Every other operator keeps, renames or loses facts.
 *
 * @param owners owner of each bin
 */
final class RowPlacement(owners: Array[Int]) {
  import RowPlacement._

  private val known = new java.util.IdentityHashMap[SparkPlan, Placed]

  def of(plan: SparkPlan): Placed = Option(known.get(plan)).getOrElse {
    val placed = plan match {
      case _: BroadcastExchangeLike => Placed(None, Nil, isBroadcast = true)
      case r: ReusedExchangeExec => renamed(of(r.child), r.child.output.zip(r.output))
      case e: ShuffleExchangeLike => from(e.outputPartitioning)
      case leaf if leaf.children.isEmpty => from(leaf.outputPartitioning)
      case u: UnionExec => if (UnionForm.isPlain(u)) Placed(None, Nil) else common(u, u.children)
      case u: CoPartitionedUnionExec => common(u, u.children)
      case c: CoalesceExec => Placed(Some(c.numPartitions), Nil)
      case _: TakeOrderedAndProjectExec | _: CollectLimitExec | _: CollectTailExec => Placed(Some(1), Nil)
      case _: CartesianProductExec => Placed(None, Nil)
      case _: ExpandExec => of(plan.children.head).copy(facts = Nil)
      case join: BaseJoinExec => joined(join.joinType, join.leftKeys, join.rightKeys, of(join.left), of(join.right))
      case join: StreamingSymmetricHashJoinExec =>
        joined(join.joinType, join.leftKeys, join.rightKeys, of(join.left), of(join.right))
      case a: BaseAggregateExec =>
        val grouped = aliased(of(a.child), a.groupingExpressions)
        aliased(grouped, a.resultExpressions)
      case p: ProjectExec => aliased(of(p.child), p.projectList)
      case one if one.children.size == 1 => of(one.children.head)
      case several =>
        val inputs = several.children.map(of)
        Placed(inputs.flatMap(_.partitions).headOption, inputs.filterNot(_.isBroadcast).flatMap(_.facts))
    }
    val visible = placed.facts.filter(f => AttributeSet(f.keys.flatMap(_.references)).subsetOf(plan.outputSet)).distinct
    known.put(plan, placed.copy(facts = visible))
    known.get(plan)
  }

  private def from(partitioning: SparkPartitioning): Placed = {
    val parts = PartitioningCollection.flatten(partitioning)
    val facts = parts.flatMap {
      case n: NullAwareHashPartitioning => Seq(Fact(ByRemainder(n.numPartitions), n.expressions, hasNulls = false))
      case p: Expression => factsOf(p.asInstanceOf[SparkPartitioning])
      case _ => Nil
    }
    // A leaf often doesn't know its number of partitions.
    Placed(parts.map(_.numPartitions).find(_ > 0), facts)
  }

  private def factsOf(partitioning: SparkPartitioning): Seq[Fact] = idOf(partitioning).toSeq.flatMap { id =>
    id.collect { case h: HashExpression[_] => h } match {
      case Seq(hash) if hash.children == hashOf(hash.children).children && hash.semanticEquals(hashOf(hash.children)) =>
        val partition =
          id.transform { case h: HashExpression[_] if h eq hash => BoundReference(0, IntegerType, nullable = false) }
        def follows(expected: Int => Int) = Hashes.forall(h => partition.eval(InternalRow(h)) == expected(h))
        val n = partitioning.numPartitions
        val placers = Seq(
          Option.when(n > owners.max)(ByTable -> ((h: Int) => owners(Math.floorMod(h, owners.length)))),
          Some(ByRemainder(n) -> ((h: Int) => Math.floorMod(h, n)))).flatten
        placers.collect { case (placer, expected) if follows(expected) => Fact(placer, hash.children) }
      case _ => Nil
    }
  }

  private def idOf(partitioning: SparkPartitioning): Option[Expression] = partitioning match {
    case h: HashPartitioning => Some(h.partitionIdExpression)
    case p: ShufflePartitionIdPassThrough =>
      Some(p.partitionIdExpression.transform { case routed: RoutedPartition => routed.owner })
    case _ => None
  }

  /** The facts that hold in each branch, in terms of the union's columns. */
  private def common(union: SparkPlan, branches: Seq[SparkPlan]): Placed = {
    val all = branches.map(b => renamed(of(b), b.output.zip(union.output)))
    val facts = all.head.facts.filter(f => all.tail.forall(_.facts.exists(same(_, f))))
    Placed(Option.when(all.map(_.partitions).distinct.size == 1)(all.head.partitions).flatten, facts)
  }

  private def joined(
      kind: JoinType, leftKeys: Seq[Expression], rightKeys: Seq[Expression], left: Placed, right: Placed): Placed = {
    val facts = kind match {
      case _: InnerLike =>
        val pairs = leftKeys.zip(rightKeys)
        // If two columns are equal, a fact about one is a fact about the other.
        (left.facts ++ right.facts).flatMap(f => variants(f, pairs ++ pairs.map(_.swap)))
      case LeftOuter | LeftSemi | LeftAnti | _: ExistenceJoin => left.facts
      case RightOuter => right.facts
      case _ => Nil
    }
    val partitions = Seq(left, right).filterNot(_.isBroadcast).flatMap(_.partitions).headOption
    Placed(partitions, facts)
  }

  private def renamed(placed: Placed, to: Seq[(Attribute, Attribute)]): Placed = {
    val names = AttributeMap(to)
    placed.copy(facts = placed.facts.collect {
      case f if f.keys.forall(_.references.forall(names.contains)) =>
        f.copy(keys = f.keys.map(_.transform { case a: Attribute => names(a) }))
    })
  }

  private def aliased(placed: Placed, list: Seq[NamedExpression]): Placed = {
    val names = list.collect { case a @ Alias(child, _) => child -> (a.toAttribute: Expression) }
    placed.copy(facts = placed.facts.flatMap(variants(_, names)))
  }

  /** The fact, with each key or part of a key under any of its names. */
  private def variants(fact: Fact, names: Seq[(Expression, Expression)]): Seq[Fact] = {
    def forms(key: Expression): Seq[Expression] = {
      val whole = names.collect { case (from, to) if from.semanticEquals(key) => to }
      val parts = if (key.children.isEmpty) Nil
      else product(key.children.map(forms)).map(key.withNewChildren(_))
      (key +: (whole ++ parts)).distinct
    }
    product(fact.keys.map(forms)).map(keys => fact.copy(keys = keys)).take(MaxVariants)
  }
}

object RowPlacement {
  private val MaxVariants = 256
  private val Hashes: Seq[Int] = {
    val random = new scala.util.Random(1)
    Seq(0, 1, -1, Int.MaxValue, Int.MinValue) ++ Seq.fill(500)(random.nextInt())
  }

  def same(one: Fact, other: Fact): Boolean =
    one.by == other.by && one.hasNulls == other.hasNulls && sameKeys(one.keys, other.keys)

  def sameKeys(one: Seq[Expression], other: Seq[Expression]): Boolean =
    one.size == other.size && one.zip(other).forall { case (a, b) => a.semanticEquals(b) }

  /** The hash that Spark partitions by, from Spark itself. */
  private def hashOf(keys: Seq[Expression]): HashExpression[_] =
    HashPartitioning(keys, 2).partitionIdExpression.collectFirst { case h: HashExpression[_] => h }.get

  private def product[T](choices: Seq[Seq[T]]): Seq[Seq[T]] =
    choices.foldLeft(Seq(Seq.empty[T]))((done, next) => for (d <- done; n <- next) yield d :+ n)
}
