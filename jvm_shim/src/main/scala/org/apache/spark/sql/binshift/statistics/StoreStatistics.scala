package org.apache.spark.sql.binshift.statistics

import org.apache.spark.sql.execution.streaming.state.binshift.routing.RoutingTable
import org.apache.spark.sql.execution.streaming.state.binshift.statistics.{BinCount, StoreReport}

/**
 * What is known of the bins of one kind of store of an operator, over all of its partitions.
 *
 * Keys follow the stores' own count of the rows that come and go. Bytes follow what is written: exact while
 * all rows of a bin are of one size; else an estimate, since what a rewritten or removed row had occupied
 * is taken for the mean of its bin, so that it is never below what as many of the smallest rows written
 * would take, nor above what as many of the largest would.
 *
 * Not thread-safe.
 */
private[binshift] final class StoreStatistics(bins: Int) {
  val keys = new Array[Long](bins)
  val bytes = new Array[Long](bins)
  val reads = new Array[Long](bins)
  val writes = new Array[Long](bins)

  /** Rows of all families, those included that Spark keeps for itself. */
  private[binshift] val rows = new Array[Long](bins)
  private var isSized = true

  /** Whether keys and bytes are known: Spark keeps count of rows, unless it is told not to. */
  def isSizeKnown: Boolean = isSized

  def restore(saved: SavedStore): Unit = {
    saved.keys.copyToArray(keys)
    saved.bytes.copyToArray(bytes)
    saved.rows.copyToArray(rows)
  }

  /** Takes in an epoch: what the stores reported at its commit, one report for each partition at most. */
  def commit(reports: Iterable[StoreReport], table: RoutingTable): Unit = {
    java.util.Arrays.fill(reads, 0L)
    java.util.Arrays.fill(writes, 0L)
    reports.foreach { report =>
      isSized = report.isSized
      report.bins.foreach { case (bin, count) => add(bin, count) }
    }
    correct(reports, table)
  }

  private def add(bin: Int, c: BinCount): Unit = {
    reads(bin) += c.reads
    writes(bin) += c.writes
    val present = rows(bin) + c.added
    bytes(bin) = math.round(bytesAfter(c, present, bytes(bin) + c.bytesAdded.toDouble))
    rows(bin) = math.max(0, present - c.removed)
    keys(bin) = math.max(0, keys(bin) + c.keys)
  }

  private def bytesAfter(c: BinCount, present: Long, before: Double): Double =
    if (present <= c.removed) 0
    else {
      val mean = before / present
      val rewritten =
        if (c.rewritten >= present) c.bytesRewritten.toDouble * present / c.rewritten
        else before + c.bytesRewritten - c.rewritten * mean
      rewritten * (present - c.removed) / present
    }

  /**
   * Makes the bins of each partition add up to what its store has. They do, unless reports are missing:
   * those of epochs between the last save and a crash, or of jobs from threads of a foreign pool.
   */
  private def correct(reports: Iterable[StoreReport], table: RoutingTable): Unit = {
    val sums = new Array[Long](table.partitions)
    val keySums = new Array[Long](table.partitions)
    rows.indices.foreach { bin =>
      sums(table.owners(bin)) += rows(bin)
      keySums(table.owners(bin)) += keys(bin)
    }
    val wrong = reports.flatMap(r => r.size.map(r.partition -> _)).filter { case (p, size) =>
      p < table.partitions && (sums(p) != size.rows + size.internal || keySums(p) != size.rows)
    }.toMap
    if (wrong.nonEmpty) {
      val meanBytes = mean
      val rowShares = new Shares(table, sums)
      val keyShares = new Shares(table, keySums)
      rows.indices.foreach { bin =>
        wrong.get(table.owners(bin)).foreach { size =>
          val before = rows(bin)
          rows(bin) = rowShares.next(bin, before, size.rows + size.internal)
          keys(bin) = keyShares.next(bin, keys(bin), size.rows)
          bytes(bin) = math.round(
            if (before > 0) bytes(bin).toDouble / before * rows(bin) else meanBytes * rows(bin))
        }
      }
    }
  }

  private def mean: Double = {
    val all = rows.sum
    if (all > 0) bytes.sum.toDouble / all else 0
  }
}

/**
 * Divides what a partition has among its bins as they had it before, or evenly if they had nothing, so that
 * the parts add up.
 *
 * @param sums what the bins of each partition had
 */
private final class Shares(table: RoutingTable, sums: Array[Long]) {
  private val seen = new Array[Long](table.partitions)
  private val handed = new Array[Long](table.partitions)

  /** The part of `total` that falls to a bin, which had `part`; each bin is asked for once. */
  def next(bin: Int, part: Long, total: Long): Long = {
    val p = table.owners(bin)
    seen(p) += (if (sums(p) > 0) part else 1)
    val upTo = math.round(seen(p).toDouble / (if (sums(p) > 0) sums(p) else table.sizes(p)) * total)
    val share = upTo - handed(p)
    handed(p) = upTo
    share
  }
}
