package org.apache.spark.sql.execution.streaming.state.binshift.statistics

import scala.collection.mutable

/** How many rows each bin has. Not thread-safe. */
private[binshift] final class RowsByBin {
  private val counts = mutable.LongMap.empty[RowCounts]

  def apply(bin: Int): RowCounts = counts.getOrElse(bin, RowCounts.Zero)

  def total: RowCounts = RowCounts.sum(counts.values)

  /** The bins that have rows, with their numbers. */
  def toMap: Map[Int, RowCounts] = counts.iterator.collect { case (bin, n) if n != RowCounts.Zero => bin.toInt -> n }.toMap

  /** A copy with the numbers of `bins` only. */
  def of(bins: Iterable[Int]): RowsByBin = RowsByBin(bins.map(bin => bin -> apply(bin)))

  /** Counts `rows` that came to `bin`, or left it if the numbers are negative. */
  def add(bin: Int, rows: RowCounts): Unit = counts(bin) = apply(bin) + rows

  def +=(more: RowsByBin): Unit = more.counts.foreach { case (bin, n) => add(bin.toInt, n) }

  def drop(bins: Iterable[Int]): Unit = bins.foreach(counts -= _.toLong)

  def clear(): Unit = counts.clear()
}

private[binshift] object RowsByBin {
  def apply(counts: Iterable[(Int, RowCounts)] = Nil): RowsByBin = {
    val rows = new RowsByBin
    counts.foreach { case (bin, n) => rows.add(bin, n) }
    rows
  }

  def sum(of: Iterable[RowsByBin]): RowsByBin = {
    val rows = new RowsByBin
    of.foreach(rows += _)
    rows
  }
}
