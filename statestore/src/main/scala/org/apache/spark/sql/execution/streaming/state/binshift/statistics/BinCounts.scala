package org.apache.spark.sql.execution.streaming.state.binshift.statistics

import org.apache.spark.sql.execution.streaming.state.binshift.routing.RoutingTable

/**
 * Counts what a store's operations did to each bin that its partition owns, at the loaded version. Each operation costs one or
 * two additions to arrays.
 *
 * Counts only what the operator does, and not rows that are moved or replayed. Used by the store's task; background threads may
 * read a value that is slightly out of date.
 *
 * @param table     the table in force, whose arrays all stores of an executor share
 * @param partition of the store
 */
private[binshift] final class BinCounts(table: RoutingTable, partition: Int) {
  import BinCounts._

  private val counts = new Array[Long](table.sizes.lift(partition).getOrElse(0) * Width)

  def read(bin: Int): Unit = if (isOwned(bin)) counts(table.ranks(bin) * Width + Reads) += 1

  /**
   * Counts a write to an owned bin.
   *
   * @param rows       rows that it added; negative for a removal, 0 if the row existed already (or didn't exist, for a removal)
   * @param isInternal whether the rows are in a family that Spark keeps for itself
   * @param bytes      bytes of the key and the value that were written
   * @param appended   how many of those bytes were appended to an existing row
   */
  def wrote(bin: Int, rows: Long, isInternal: Boolean, bytes: Int, appended: Int): Unit = {
    val at = table.ranks(bin) * Width
    counts(at + Writes) += 1
    if (!isInternal) counts(at + Keys) += rows
    if (rows > 0) {
      counts(at + Added) += rows
      counts(at + BytesAdded) += bytes
    } else if (rows < 0) {
      counts(at + Removed) -= rows
    } else if (appended > 0) {
      counts(at + BytesAdded) += appended
    } else if (bytes > 0) {
      counts(at + Rewritten) += 1
      counts(at + BytesRewritten) += bytes
    }
  }

  /** How often `bin` was looked up or written. */
  def touches(bin: Int): Long = if (isOwned(bin)) {
    val at = table.ranks(bin) * Width
    counts(at + Reads) + counts(at + Writes)
  } else 0

  /** Calls `consume` for each bin that was touched, in ascending order. */
  def foreachTouched(consume: (Int, BinCount) => Unit): Unit = if (counts.nonEmpty) {
    val bins = table.binsOf(partition)
    bins.indices.foreach { rank =>
      val at = rank * Width
      if (counts(at + Reads) + counts(at + Writes) > 0) consume(bins(rank), BinCount.read(counts, at))
    }
  }

  private def isOwned(bin: Int): Boolean =
    bin >= 0 && bin < table.owners.length && table.owners(bin) == partition
}

private[binshift] object BinCounts {
  private[binshift] val Reads = 0
  private[binshift] val Writes = 1
  private[binshift] val Keys = 2
  private[binshift] val Added = 3
  private[binshift] val Removed = 4
  private[binshift] val Rewritten = 5
  private[binshift] val BytesAdded = 6
  private[binshift] val BytesRewritten = 7
  private[binshift] val Width = 8
}

/**
 * The operations on one bin of one store during one epoch.
 *
 * @param reads          lookups and scans of a key
 * @param writes         puts, merges and removals
 * @param keys           rows added, less rows removed, in families that users see
 * @param added          rows added, in all families
 * @param removed        rows removed, in all families
 * @param rewritten      puts of rows that existed already
 * @param bytesAdded     bytes of keys and values of the added rows, and of values that were appended
 * @param bytesRewritten bytes of keys and values of the rewritten rows
 */
private[sql] final case class BinCount(
    reads: Long, writes: Long, keys: Long, added: Long, removed: Long, rewritten: Long, bytesAdded: Long,
    bytesRewritten: Long)

private[sql] object BinCount {
  import BinCounts._

  private[binshift] def read(a: Array[Long], at: Int): BinCount =
    BinCount(a(at + Reads), a(at + Writes), a(at + Keys), a(at + Added), a(at + Removed), a(at + Rewritten),
      a(at + BytesAdded), a(at + BytesRewritten))
}
