package org.apache.spark.sql.execution.streaming.state.binshift.routing

import java.nio.charset.StandardCharsets.UTF_8
import java.util.zip.CRC32

import scala.collection.immutable.ArraySeq

/**
 * The map from bin to partition that is in force for one epoch.
 *
 * Invariant: `assignment(bin)` is the only owner of `bin` and lies in `[0, partitions)`. One table
 * serves all operators of a query.
 *
 * @param partitions number of state partitions; a partition may own no bin
 * @param assignment owner of each bin, indexed by bin
 */
private[sql] final case class RoutingTable(partitions: Int, assignment: ArraySeq[Int]) {
  require(partitions >= 1, s"a routing table needs at least 1 partition, not $partitions")
  // The number may come from outside, and arrays of that size are allocated.
  require(partitions <= RoutingTable.MaxPartitions,
    s"a routing table has at most ${RoutingTable.MaxPartitions} partitions, not $partitions")
  require(assignment.nonEmpty, "a routing table needs at least 1 bin")
  assignment.iterator.zipWithIndex.foreach { case (owner, bin) =>
    require(owner >= 0 && owner < partitions,
      s"bin $bin is assigned to partition $owner, but there are $partitions partitions")
  }

  def bins: Int = assignment.length

  def owner(bin: Int): Int = assignment(bin)

  /** Owner of each bin. Must not be modified. */
  lazy val owners: Array[Int] = assignment.unsafeArray.asInstanceOf[Array[Int]]

  /** CRC-32 of the partitions and the owners, as decimal numbers: `4:0,1,2,3`. */
  lazy val checksum: Long = {
    val crc = new CRC32
    crc.update(owners.mkString(s"$partitions:", ",", "").getBytes(UTF_8))
    crc.getValue
  }

  /** Number of bins of each partition. */
  lazy val sizes: Array[Int] = {
    val out = new Array[Int](partitions)
    owners.foreach(out(_) += 1)
    out
  }

  /** For each bin, its position among the bins of its owner. */
  lazy val ranks: Array[Int] = {
    val next = new Array[Int](partitions)
    owners.map { owner =>
      next(owner) += 1
      next(owner) - 1
    }
  }

  /** The bins of each partition, ascending. Must not be modified. */
  lazy val binsOf: Array[Array[Int]] = {
    val out = sizes.map(new Array[Int](_))
    owners.indices.foreach(bin => out(owners(bin))(ranks(bin)) = bin)
    out
  }

  /** The bins that have another owner in `next`. */
  def movedIn(next: RoutingTable): Set[Int] = owners.indices.filter(bin => owner(bin) != next.owner(bin)).toSet

  /** The table after `moves`, with `newPartitions` partitions. Each move must start at the owner. */
  def moved(moves: Seq[Move], newPartitions: Int): RoutingTable = {
    val next = assignment.toArray
    moves.foreach { m =>
      require(m.bin >= 0 && m.bin < bins, s"bin ${m.bin} does not exist; there are $bins bins")
      require(next(m.bin) == m.source,
        s"bin ${m.bin} belongs to partition ${next(m.bin)}, not to ${m.source}")
      next(m.bin) = m.target
    }
    RoutingTable(newPartitions, ArraySeq.unsafeWrapArray(next))
  }
}

private[sql] object RoutingTable {
  /** The largest possible number of bins. */
  val MaxPartitions: Int = 1 << 16

  /** The first table of a checkpoint: places every key where Spark's own hash partitioning would. */
  def initial(bins: Int, partitions: Int): RoutingTable =
    RoutingTable(partitions, ArraySeq.tabulate(bins)(_ % partitions))
}

/** A bin that moves from one partition to another. */
private[sql] final case class Move(bin: Int, source: Int, target: Int) {
  require(source != target, s"bin $bin moves from partition $source to itself")
}
