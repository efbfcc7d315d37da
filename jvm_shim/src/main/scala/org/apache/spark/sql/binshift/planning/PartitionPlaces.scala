package org.apache.spark.sql.binshift.planning

import scala.collection.mutable

import org.apache.spark.sql.binshift.migration.{Executors, PlacementSnapshot}
import org.apache.spark.sql.execution.streaming.state.binshift.BinshiftException

/**
 * Decides where partitions should run, and how many there should be.
 *
 * The rules are those of `planning/placement.py`; golden placements keep both languages equal. Pure.
 *
 * @param now the live executors, and where the partitions are
 */
private[binshift] final case class PartitionPlaces(now: PlacementSnapshot) {

  /** The same places, but executors that were drained count like any other. */
  def rejoined: PartitionPlaces = PartitionPlaces(now.copy(leaving = Nil))

  /** Live executors that run no partition, such as those that have just joined; empty if no executor runs any. */
  def idle: Seq[String] = {
    val used = now.partitions.flatten.toSet.intersect(now.executors.toSet)
    if (used.isEmpty) Nil else open.filterNot(used)
  }

  /** The number of partitions if each idle executor gets as many new ones as the others have on average. */
  def partitionsWithIdle(most: Int): Int = {
    val n = now.partitions.size
    val used = open.size - idle.size
    // Rounds halves to even, as Python does.
    math.min(most, if (idle.isEmpty) n else n + idle.size * math.max(1, math.rint(n.toDouble / used).toInt))
  }

  /**
   * The new executor of each partition that has to move so that all executors run equally many, within one.
   *
   * @param loads   bins of each partition; empty if each partition counts the same
   * @param placeOn executors to which partitions may go; by default all that are open
   */
  def spread(loads: Seq[Int] = Nil, placeOn: Seq[String] = Nil): Map[Int, String] = {
    val residents = new Residents(loads, open, if (placeOn.isEmpty) open else placeOn)
    residents.house(now.partitions.indices.filter(p => now.partitions(p).nonEmpty && home(p).isEmpty))
    residents.level()
    residents.moved.toMap
  }

  /** The new executor of each partition on an executor that is to be emptied. */
  def drained(executor: String, placeOn: Seq[String] = Nil): Map[Int, String] = {
    if (!now.decommissioned.contains(executor)) requireLive(Seq(executor))
    requireLive(placeOn)
    val others = (if (placeOn.isEmpty) open else placeOn).filter(_ != executor)
    if (others.isEmpty) throw BinshiftException("NO_OTHER_EXECUTOR", "executor" -> executor).plan(
      s"no other executor than $executor can take its partitions; add an executor first, or drain another one")
    val emptied = PartitionPlaces(now.copy(leaving = now.leaving :+ executor))
    val residents = new emptied.Residents(Nil, emptied.open, others)
    residents.house(now.partitions.indices.filter(now.partitions(_).contains(executor)))
    residents.moved.toMap
  }

  def requireLive(executors: Seq[String]): Unit =
    Executors.requireLive(executors, now.executors, now.decommissioned.contains(_), now.excluded.contains(_))

  /** Executors that may get partitions. */
  private def open: Seq[String] = now.executors.filterNot(now.leaving.contains)

  /** The first open executor of a partition. A partition may be on several executors for a while. */
  private def home(partition: Int): Option[String] = now.partitions(partition).find(open.contains)

  /** Tracks which partitions each executor gets, and the load that this adds up to. */
  private final class Residents(known: Seq[Int], open: Seq[String], receivers: Seq[String]) {
    val moved = mutable.SortedMap.empty[Int, String]
    private val loads = if (known.size == now.partitions.size) known else Seq.fill(now.partitions.size)(1)
    // Keeps the order of the executors, because the first of several equal ones is taken.
    private val on = mutable.LinkedHashMap.from((open ++ receivers).distinct.map(_ -> mutable.ArrayBuffer.empty[Int]))
    now.partitions.indices.foreach(p => home(p).foreach(on(_) += p))

    /** Gives each of `partitions`, heaviest first, to the receiver with the fewest. */
    def house(partitions: Seq[Int]): Unit = {
      val leaving = partitions.toSet
      on.values.foreach(_.filterInPlace(!leaving(_)))
      partitions.sortBy(p => (-loads(p), p)).foreach(give(_, receivers.minBy(rank)))
    }

    /** Moves partitions from the executor with the most to the receiver with the fewest, as long as that evens them out. */
    def level(): Unit = {
      def most = on.keys.maxBy(rank)
      def fewest = receivers.minBy(rank)
      while (on(most).size - on(fewest).size > 1) {
        val (from, to) = (most, fewest)
        // Twice the load that would make both equal, to stay with whole numbers.
        val wanted = load(from) - load(to)
        val partition = on(from).minBy(p => (math.abs(2 * loads(p) - wanted), p))
        on(from) -= partition
        give(partition, to)
      }
    }

    private def give(partition: Int, executor: String): Unit = {
      on(executor) += partition
      moved(partition) = executor
    }

    private def rank(executor: String): (Int, Int) = (on(executor).size, load(executor))

    private def load(executor: String): Int = on(executor).map(loads).sum
  }
}
