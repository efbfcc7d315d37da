package org.apache.spark.sql.execution.streaming.state.binshift

import java.util.{ArrayDeque, Arrays, PriorityQueue}

import org.apache.spark.sql.execution.streaming.state.{ByteArrayPair, RocksDBIterator}
import org.apache.spark.util.NextIterator

/**
 * Rows of several bins in the order of their keys, as Spark's storage would give them: timers, TTL
 * indexes and timestamp-ordered join state are read across keys, and reading stops early.
 *
 * Merges the bins with one RocksDB iterator, which is moved from bin to bin: a few rows of each bin
 * are kept, more of a bin that turns out to be rich. Costs a seek per bin that has rows, and per
 * [[OrderedScan.MaxChunk]] rows; holds at most that many rows per bin.
 *
 * @param rows  a new iterator over the column family; closed by this class
 * @param bins  bins to read, ascending
 * @param start smallest key, without bin; empty for the first
 * @param end   first key that is not wanted, without bin
 */
private[binshift] final class OrderedScan(
    rows: RocksDBIterator, bins: Array[Int], start: Array[Byte], end: Option[Array[Byte]])
  extends NextIterator[ByteArrayPair] {

  private val pair = new ByteArrayPair()
  private var merged: PriorityQueue[BinRows] = _

  override protected def getNext(): ByteArrayPair = {
    if (merged == null) merged = open()
    val smallest = merged.poll()
    if (smallest == null) {
      finished = true
      null
    } else {
      val row = smallest.take()
      if (smallest.isEmpty && smallest.hasMore) refill(smallest, row.key)
      if (!smallest.isEmpty) merged.add(smallest)
      pair.set(BinKeyCodec.stripBin(row.key), row.value)
      pair
    }
  }

  override protected def close(): Unit = rows.close()

  /** The first rows of each bin. A seek ends at the next bin that has rows, so empty bins cost nothing. */
  private def open(): PriorityQueue[BinRows] = {
    val queue = new PriorityQueue[BinRows](math.max(1, bins.length), BinRows.BySmallestKey)
    var row: OrderedRow = null
    var i = 0
    while (i < bins.length) {
      val bin = bins(i)
      if (row == null || row.bin < bin || row.bin == bin && isBefore(row, start)) {
        rows.seek(BinKeyCodec.encode(bin, start))
        row = nextRow()
      }
      if (row == null) i = bins.length
      else {
        if (row.bin == bin) {
          val cursor = new BinRows(bin)
          row = fill(cursor, row)
          if (!cursor.isEmpty) queue.add(cursor)
        }
        i += 1
      }
    }
    queue
  }

  private def refill(cursor: BinRows, after: Array[Byte]): Unit = {
    // The successor of a key is the key with a zero byte behind it.
    rows.seek(Arrays.copyOf(after, after.length + 1))
    fill(cursor, nextRow())
  }

  /**
   * Takes `first` and what follows it, up to a chunk, while it belongs to the cursor's bin and range.
   * Returns the row that ended it, if one did.
   */
  private def fill(cursor: BinRows, first: OrderedRow): OrderedRow = {
    var row = first
    var room = cursor.nextChunk()
    while (room > 0 && row != null && row.bin == cursor.bin && !isPastEnd(row)) {
      cursor.add(row)
      room -= 1
      row = if (room > 0) nextRow() else null
    }
    cursor.hasMore = room == 0
    row
  }

  private def nextRow(): OrderedRow = if (rows.hasNext) OrderedRow.of(rows.next()) else null

  private def isPastEnd(row: OrderedRow): Boolean = end.exists(!isBefore(row, _))

  private def isBefore(row: OrderedRow, key: Array[Byte]): Boolean =
    Arrays.compareUnsigned(row.key, BinKeyCodec.PrefixBytes, row.key.length, key, 0, key.length) < 0
}

private object OrderedScan {
  /** Rows that are read of a bin at a time, at first and at most. */
  val MinChunk = 1
  val MaxChunk = 64
}

/** @param key with its bin */
private final class OrderedRow(val key: Array[Byte], val value: Array[Byte]) {
  val bin: Int = BinKeyCodec.binOf(key)
}

private object OrderedRow {
  /** Keeps the arrays, which RocksDB's iterator hands out afresh for each row; the pair is reused. */
  def of(pair: ByteArrayPair): OrderedRow = new OrderedRow(pair.key, pair.value)
}

/** What was read of one bin and not handed out yet. */
private final class BinRows(val bin: Int) {
  private val waiting = new ArrayDeque[OrderedRow]()
  private var chunk = OrderedScan.MinChunk

  /** Whether the bin may have rows after those that wait. */
  var hasMore = true

  def isEmpty: Boolean = waiting.isEmpty
  def smallest: OrderedRow = waiting.peekFirst()
  def add(row: OrderedRow): Unit = waiting.addLast(row)
  def take(): OrderedRow = waiting.pollFirst()

  def nextChunk(): Int = {
    val now = chunk
    chunk = math.min(chunk * 2, OrderedScan.MaxChunk)
    now
  }
}

private object BinRows {
  /** By the key without its bin: the order of the same rows in Spark's storage. */
  val BySmallestKey: java.util.Comparator[BinRows] = (a, b) => {
    val (x, y) = (a.smallest.key, b.smallest.key)
    Arrays.compareUnsigned(x, BinKeyCodec.PrefixBytes, x.length, y, BinKeyCodec.PrefixBytes, y.length)
  }
}
