package org.apache.spark.sql.binshift.statistics

import org.apache.spark.sql.execution.streaming.state.binshift.routing.RoutingTable
import org.apache.spark.sql.execution.streaming.state.binshift.statistics.{BinCount, StoreReport}

/**
 * The statistics of the bins of one kind of store of an operator, over all of its partitions.
 *
 * Keys follow the stores' own count of rows that are added and removed. Bytes follow what is written. They are exact while all rows
 * of a bin have the same size. Otherwise they are an estimate, because a rewritten or removed row is assumed to have had the mean
 * size of its bin. The estimate always lies between what as many of the smallest, and of the largest, rows written would take.
 *
 * Not thread-safe.
 */
private[binshift] final class StoreStatistics(bins: Int) {
  val keys = new Array[Long](bins)
  val bytes = new Array[Long](bins)
  val reads = new Array[Long](bins)
  val writes = new Array[Long](bins)

  /** Rows of all families, including those that Spark keeps for itself. */
  private[binshift] val rows = new Array[Long](bins)
  private var isSized = true

  /** True if keys and bytes are known. They are, unless Spark is told not to count rows. */
  def isSizeKnown: Boolean = isSized

  def restore(saved: SavedStore): Unit = {
    saved.keys.copyToArray(keys)
    saved.bytes.copyToArray(bytes)
    saved.rows.copyToArray(rows)
  }

  /** Adds the reports of an epoch, at most one for each partition. */
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
   * Makes the bins of each partition add up to the rows of its store. They do anyway, unless reports are missing: those of epochs
   * between the last save and a crash, or of jobs from threads of a foreign pool.
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
 * Divides the rows of a partition among its bins in the proportions that they had before, or evenly if they had none, so that the
 * parts add up to the whole.
 *
 * @param sums what the bins of each partition had in all
 */
private final class Shares(table: RoutingTable, sums: Array[Long]) {
  private val seen = new Array[Long](table.partitions)
  private val handed = new Array[Long](table.partitions)

  /** The share of `total` for a bin that had `part`. Called once for each bin. */
  def next(bin: Int, part: Long, total: Long): Long = {
    val p = table.owners(bin)
    seen(p) += (if (sums(p) > 0) part else 1)
    val upTo = math.round(seen(p).toDouble / (if (sums(p) > 0) sums(p) else table.sizes(p)) * total)
    val share = upTo - handed(p)
    handed(p) = upTo
    share
  }
}
