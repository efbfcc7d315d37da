package org.apache.spark.sql.binshift.planning

import scala.collection.mutable

import org.apache.spark.sql.binshift.migration.{MigrationPlan, Step}
import org.apache.spark.sql.execution.streaming.state.binshift.BinshiftException
import org.apache.spark.sql.execution.streaming.state.binshift.routing.{Move, RoutingTable}

/**
 * Cuts the moves from one table to another into steps.
 *
 * The rules are those of `planning/strategies.py`; golden plans keep both languages equal. Pure. `Bounded`, which needs the
 * bytes of bins, exists only in Python.
 */
private[binshift] sealed abstract class Strategy(val name: String, val isOnDemand: Boolean = false) {

  /** The moves of each step. Each of `moves` is in exactly one step. */
  def cut(moves: IndexedSeq[Move]): Seq[Seq[Move]]

  /** @param gap epochs that stay idle between two steps */
  def plan(source: RoutingTable, target: RoutingTable, gap: Int = 0): MigrationPlan = {
    if (gap < 0) throw BinshiftException("INVALID_VALUE", "name" -> "gap", "value" -> gap).plan(
      s"gap $gap is impossible; give a whole number of epochs, at least 0")
    val cuts = cut(BalancedTable.moves(source, target))
    val parts = if (cuts.isEmpty && source.partitions != target.partitions) Seq(Nil) else cuts
    // New partitions exist from the first step on, and partitions that go away stay until the last step.
    val meanwhile = math.max(source.partitions, target.partitions)
    val steps = parts.zipWithIndex.map { case (part, i) =>
      Step(if (i == parts.size - 1) target.partitions else meanwhile, part)
    }
    MigrationPlan(source, steps.toIndexedSeq, name, gap, isOnDemand)
  }
}

private[binshift] object Strategy {

  /** Each step has a quarter of the bins. */
  def default(source: RoutingTable): Strategy = new InTurn(s"batched(${quarter(source)})", quarter(source))

  /** The strategy that takes effect soonest without copies: rows on demand if the operators allow it, else whole files or bins. */
  def atOnce(fetchesRows: Boolean): Strategy = parse(if (fetchesRows) "on-demand" else "all-at-once")

  /** The strategy with a name as on the command line: `fluid`, `batched:16`, `optimized:2`. */
  def parse(text: String): Strategy = {
    val (name, size) = text.split(":", 2) match {
      case Array(name, size) => (name, size)
      case _ => (text, "")
    }
    if (size.exists(!('0' to '9').contains(_)) || size.nonEmpty != Sized.contains(name)) throw unknown(text)
    def bins(argument: String): BigInt = Option(BigInt(size)).filter(_ >= 1).getOrElse(
      throw BinshiftException("INVALID_VALUE", "name" -> argument, "value" -> BigInt(size)).plan(
        s"${argument.replace('_', ' ')} ${BigInt(size)} is impossible; give a whole number of at least 1"))
    name match {
      case "all-at-once" => new InTurn(name, Int.MaxValue)
      case "on-demand" => new InTurn(name, Int.MaxValue, isOnDemand = true)
      case "fluid" => new InTurn(name, 1)
      case "batched" => new InTurn(s"batched(${bins("bins_per_step")})", atMost(bins("bins_per_step")))
      case "optimized" => new Matchings(s"optimized(${bins("bins_per_pair")})", atMost(bins("bins_per_pair")))
      case _ => throw unknown(text)
    }
  }

  private def quarter(source: RoutingTable): Int = math.max(1, source.bins / 4)

  private def atMost(n: BigInt): Int = n.min(Int.MaxValue).toInt

  private def unknown(text: String): BinshiftException =
    BinshiftException("INVALID_VALUE", "name" -> "strategy", "value" -> text).plan(
      s"strategy '$text' is unknown; give one of all-at-once, fluid, batched:BINS, optimized:BINS, on-demand")

  private val Sized = Set("batched", "optimized")
}

/** Puts `size` moves into each step. The pairs of source and target take turns, so that a step loads all of them alike. */
private final class InTurn(name: String, size: Int, isOnDemand: Boolean = false) extends Strategy(name, isOnDemand) {
  override def cut(moves: IndexedSeq[Move]): Seq[Seq[Move]] = {
    val pairs = moves.groupBy(m => (m.source, m.target)).toSeq.sortBy(_._1).map(_._2)
    // A pair without moves left is dropped from the round, so a round costs no more than its moves.
    val inTurn = mutable.ArrayBuffer.empty[Move]
    var (round, left) = (0, pairs)
    while (left.nonEmpty) {
      left.foreach(pair => inTurn += pair(round))
      round += 1
      left = left.filter(_.size > round)
    }
    inTurn.toIndexedSeq.grouped(size).toSeq
  }
}

/** In a step, no partition sends or receives more than `binsPerPair` bins. */
private final class Matchings(name: String, binsPerPair: Int) extends Strategy(name) {
  override def cut(moves: IndexedSeq[Move]): Seq[Seq[Move]] = {
    val colours = EdgeColouring(moves.map(m => (m.source, m.target)))
    moves.indices.groupBy(colours(_) / binsPerPair).toSeq.sortBy(_._1).map(_._2.map(moves))
  }
}
