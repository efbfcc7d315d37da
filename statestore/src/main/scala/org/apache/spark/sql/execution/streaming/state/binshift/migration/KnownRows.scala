package org.apache.spark.sql.execution.streaming.state.binshift.migration

import java.io.File
import java.util.UUID

import scala.jdk.CollectionConverters._

import org.rocksdb.{WriteBatch, WriteOptions}

import org.apache.spark.sql.execution.streaming.state.binshift.Faults
import org.apache.spark.sql.execution.streaming.state.binshift.keys.BinKeyCodec
import org.apache.spark.sql.execution.streaming.state.binshift.statistics.RowCounts
import org.apache.spark.sql.execution.streaming.state.binshift.storage._
import org.apache.spark.util.Utils

/**
 * The rows that a store has of bins which it owns and which have not come: those of some keys, its *known* keys.
 *
 * Invariants, for a bin that has not come, of which E is the version of its switch:
 *
 *  - the database has, of a known key, the old owner's row of version E and what the query has made of it since, or none;
 *  - it has no row of another key;
 *  - what was put here reaches no changelog, so that a recovery, which takes the bin as of E, finds what the query wrote and
 *    nothing else;
 *  - the store counts the rows that the database has.
 *
 * A key is known before it is read or written. Used by the store's task. For stores without column families.
 */
private[binshift] final class KnownRows(db: BinKeyedRocksDB, partition: Int) {
  /** By known key in its stored form, and in the order of keys: whether the old owner had a row of it at the switch. */
  private val known = new java.util.TreeMap[Array[Byte], java.lang.Boolean]((a, b) => java.util.Arrays.compareUnsigned(a, b))
  private var bytes = 0L
  private val ranges = new BinRows(db, useColumnFamilies = false)

  def contains(key: Array[Byte]): Boolean = known.containsKey(key)

  /** Whether more keys may be known: all of them are in memory. */
  def hasRoom: Boolean = known.size < KnownRows.MaxKeys && bytes < KnownRows.MaxBytes

  /** Everything was loaded from the checkpoint. */
  def clear(): Unit = {
    known.clear()
    bytes = 0
  }

  /** Takes rows in as the old owner has them: keys that are not known, of bins that have not come; or that they do not exist. */
  def add(rows: Seq[(Array[Byte], Option[Array[Byte]])]): Unit = {
    val batch = new WriteBatch()
    val options = new WriteOptions().setDisableWAL(true)
    try {
      var present = 0L
      rows.foreach { case (key, value) =>
        if (known.putIfAbsent(key, value.isDefined) == null) {
          bytes += key.length
          value.foreach { v =>
            batch.put(key, v)
            present += 1
          }
        }
      }
      RocksDBFields.native(db).write(options, batch)
      Faults.at("rows.add", partition)
      RocksDBFields.setRows(db, RocksDBFields.rows(db) + RowCounts(present, 0))
    } finally {
      batch.close()
      options.close()
    }
  }

  /** How many rows of `bins` are known. */
  def count(bins: Seq[Int]): Long = if (known.isEmpty) 0 else bins.iterator.map(ofBin(_).size.toLong).sum

  /**
   * Runs `bring`, which brings all rows of `bins` as of the switch into a database that has none of them; then lets the known
   * rows win. What the query wrote is not in the changelogs once more.
   *
   * @throws BinsNotBrought if `bring` failed, and the database is as it was; after anything else it is of no use
   */
  def winOver[T](bins: Seq[Int])(bring: => T): T = {
    val mine = bins.sorted.flatMap(bin => ofBin(bin).entrySet.asScala.toSeq)
    if (mine.isEmpty) bring
    else {
      val dir = new File(db.localRootDir.getParentFile, s"binshift-known-${UUID.randomUUID()}")
      Utils.createDirectory(dir)
      try {
        val (file, now) = write(dir, mine)
        val overlay = Seq(file.map(_.file).toSeq)
        ranges.drop(bins, _ => false, DepartedBins(RowCounts(now, 0)))
        val result = ranges.bringOrElse(bins)(bring) { e =>
          ranges.takeIn(overlay, RowCounts(now, 0))
          throw new BinsNotBrought(bins, e)
        }
        Faults.at("rows.overlay", partition)
        val before = mine.count(_.getValue.booleanValue)
        ranges.takeIn(overlay, RowCounts(now - before, 0))
        forget(bins)
        result
      } finally Utils.deleteRecursively(dir)
    }
  }

  /** Writes the values that known keys have now, and deletions of those that are gone; returns how many have one. */
  private def write(
      dir: File, keys: Seq[java.util.Map.Entry[Array[Byte], java.lang.Boolean]]): (Option[SstFile], Long) = {
    val native = RocksDBFields.native(db)
    val files = new SstFiles(dir, db.conf)
    var now = 0L
    try {
      keys.foreach { entry =>
        // As a whole, also if it is merged of several parts.
        val value = native.get(entry.getKey)
        if (value != null) {
          files.put(entry.getKey, value)
          now += 1
        } else if (entry.getValue) files.delete(entry.getKey)
      }
      (files.finish(isInternal = false), now)
    } finally files.close()
  }

  private def ofBin(bin: Int): java.util.NavigableMap[Array[Byte], java.lang.Boolean] = {
    val from = BinKeyCodec.lowerBound(bin).get
    BinKeyCodec.lowerBound(bin + 1).fold(known.tailMap(from, true))(known.subMap(from, true, _, false))
  }

  private def forget(bins: Seq[Int]): Unit = bins.foreach { bin =>
    val gone = ofBin(bin)
    gone.keySet.forEach(key => bytes -= key.length)
    gone.clear()
  }
}

/** Nothing of bins that came is in the database, which has what it had of them. */
private[binshift] final class BinsNotBrought(bins: Seq[Int], cause: Throwable)
  extends RuntimeException(s"bins ${bins.mkString(", ")} could not be taken in: ${cause.getMessage}", cause)

private object KnownRows {
  /** With more, whole bins are the cheaper way. */
  private val MaxKeys = 500000
  private val MaxBytes = 64L << 20
}
