package org.apache.spark.sql.binshift.planning

import scala.collection.immutable.ArraySeq

import org.apache.spark.sql.execution.streaming.state.binshift.BinshiftException
import org.apache.spark.sql.execution.streaming.state.binshift.routing.{Move, RoutingTable}

/**
 * Tables with another number of partitions, and the moves between tables.
 *
 * The rules are those of `planning/routing.py`; golden plans keep both languages equal. Pure.
 */
private[binshift] object BalancedTable {

  /** The table with `partitions` partitions of equal size, within one bin, and the fewest moves. */
  def of(table: RoutingTable, partitions: Int): RoutingTable = {
    requirePartitions(partitions, table.bins)
    val sizes = table.sizes.padTo(partitions, 0)
    val quota = table.bins / partitions
    val larger = table.bins % partitions
    val room = new Array[Int](partitions)
    (0 until partitions).sortBy(p => (-sizes(p), p)).zipWithIndex.foreach { case (p, rank) =>
      room(p) = quota + (if (rank < larger) 1 else 0)
    }
    val assignment = Array.fill(table.bins)(Homeless)
    table.owners.indices.foreach { bin =>
      val owner = table.owner(bin)
      if (owner < partitions && room(owner) > 0) {
        room(owner) -= 1
        assignment(bin) = owner
      }
    }
    // Fills one partition after the other, from one old owner after the other. So few pairs of partitions exchange bins, and the
    // bins that a partition gives away are neighbours.
    val receivers = room.indices.iterator.flatMap(p => Iterator.fill(room(p))(p))
    assignment.indices.filter(assignment(_) == Homeless).sortBy(bin => (table.owner(bin), bin))
      .foreach(assignment(_) = receivers.next())
    RoutingTable(partitions, ArraySeq.unsafeWrapArray(assignment))
  }

  /** The moves from one table to another with equally many bins, ascending by bin. */
  def moves(source: RoutingTable, target: RoutingTable): IndexedSeq[Move] =
    source.owners.indices.collect {
      case bin if source.owner(bin) != target.owner(bin) => Move(bin, source.owner(bin), target.owner(bin))
    }

  private def requirePartitions(partitions: Int, bins: Int): Unit = if (partitions < 1 || partitions > bins) {
    throw BinshiftException("INVALID_VALUE", "name" -> "partitions", "value" -> partitions).plan(
      s"$partitions partitions are impossible with $bins bins; give a whole number from 1 to $bins")
  }

  private val Homeless = -1
}
