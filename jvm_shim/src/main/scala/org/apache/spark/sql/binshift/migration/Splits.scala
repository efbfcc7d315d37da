package org.apache.spark.sql.binshift.migration

import org.apache.spark.sql.execution.streaming.state.binshift.routing.{Move, RoutingTable}

/** Decides which partitions begin with all files of another one. */
private[migration] object Splits {
  /** A partition that gets less than this part of another one's bins would keep too many foreign rows. */
  private val LeastPart = 4

  /**
   * For each partition that owns nothing in `now`, the partition that most of its bins come from with `moves`, if these are a good part of
   * that partition's bins. The new partition keeps all of its files until they are compacted.
   */
  def of(now: RoutingTable, moves: Seq[Move]): Map[Int, Int] = {
    val sizes = now.binsOf.map(_.size)
    moves.groupBy(_.target).filter { case (target, _) => sizes.lift(target).forall(_ == 0) }.flatMap { case (target, arriving) =>
      val (source, bins) = arriving.groupMapReduce(_.source)(_ => 1)(_ + _).toSeq.minBy { case (from, n) => (-n, from) }
      Option.when(bins * LeastPart >= sizes(source))(target -> source)
    }
  }
}
