package org.apache.spark.sql.execution.streaming.state.binshift.migration

import java.io.File
import java.util.UUID

import scala.collection.mutable
import scala.jdk.CollectionConverters._

import org.rocksdb.{RocksDB => NativeRocksDB, WriteBatch, WriteOptions}

import org.apache.spark.sql.execution.streaming.state.binshift.Faults
import org.apache.spark.sql.execution.streaming.state.binshift.keys.{ColumnFamily, KeyRows, NumberedFamily}
import org.apache.spark.sql.execution.streaming.state.binshift.shipping.FetchedRows
import org.apache.spark.sql.execution.streaming.state.binshift.statistics.RowCounts
import org.apache.spark.sql.execution.streaming.state.binshift.storage._
import org.apache.spark.util.Utils

/**
 * The rows that a store has of bins which it owns and which have not come: those of some keys, its *known* keys. In a family in
 * which a partitioning key has several rows, it is known what their keys begin with, and then all of them are.
 *
 * Invariants, for a bin that has not come, of which E is the version of its switch:
 *
 *  - the database has, of a known key, the old owner's rows of version E and what the query has made of them since, or none;
 *  - it has no row of another key;
 *  - what was put here reaches no changelog, so that a recovery, which takes the bin as of E, finds what the query wrote and
 *    nothing else;
 *  - the store counts the rows that the database has.
 *
 * A key is known before it is read or written. Used by the store's task. For families that are not read in order.
 */
private[binshift] final class KnownRows(db: BinKeyedRocksDB, partition: Int) {
  /** By known key as the database has it, and in the order of keys. */
  private val known = new java.util.TreeMap[Array[Byte], Known](KeyRows.Order)
  private var size = 0L
  private var bytes = 0L
  private val ranges = new BinRows(db, db.hasFamilies)
  private val families = mutable.Map.empty[String, NumberedFamily]

  /** Whether a key is known, or what it begins with. */
  def contains(family: String, key: Array[Byte]): Boolean = !known.isEmpty && isKnown(numbered(family).nativeKey(key))

  /** How many more keys may be known: all of them are in memory. */
  def room: Int = if (bytes < KnownRows.MaxBytes) math.max(0, KnownRows.MaxKeys - size).toInt else 0

  /** Everything was loaded from the checkpoint. */
  def clear(): Unit = {
    known.clear()
    families.clear()
    size = 0
    bytes = 0
  }

  /** Takes rows in as the old owner has them: of keys that are not known, of bins that have not come; or that they do not exist. */
  def add(fetched: Seq[FetchedRows]): Unit = {
    val batch = new WriteBatch()
    val options = new WriteOptions().setDisableWAL(true)
    try {
      var present = RowCounts.Zero
      fetched.foreach { of =>
        val family = numbered(of.key.family)
        val key = family.nativeKey(of.key.key)
        if (!isKnown(key)) {
          val before = of.rows.map { case (rest, value) =>
            val whole = if (rest.isEmpty) key else key ++ rest
            batch.put(whole, value)
            whole
          }
          note(key, Known(of.key.isPrefix, family.family.isInternal, before))
          present += RowCounts.of(family.family.isInternal, before.size)
        }
      }
      RocksDBFields.native(db).write(options, batch)
      Faults.at("rows.add", partition)
      RocksDBFields.setRows(db, RocksDBFields.rows(db) + present)
    } finally {
      batch.close()
      options.close()
    }
  }

  /** How many rows of `bins` are known, and keys that have none. */
  def count(bins: Seq[Int]): Long = {
    val sizes = for {
      family <- families.values.iterator
      bin <- bins.iterator
      of <- ofBin(family, bin).values.asScala.iterator
    } yield math.max(1L, of.before.size)
    sizes.sum
  }

  /**
   * Runs `bring`, which brings all rows of `bins` as of the switch into a database that has none of them; then lets the known
   * rows win. What the query wrote is not in the changelogs once more.
   *
   * @throws BinsNotBrought if `bring` failed, and the database is as it was; after anything else it is of no use
   */
  def winOver[T](bins: Seq[Int])(bring: => T): T = {
    val mine = for {
      family <- families.values.toSeq.sortBy(_.prefix)(KeyRows.Order)
      bin <- bins.sorted
      entry <- ofBin(family, bin).entrySet.asScala.toSeq
    } yield entry
    if (mine.isEmpty) bring
    else {
      val dir = new File(db.localRootDir.getParentFile, s"binshift-known-${UUID.randomUUID()}")
      Utils.createDirectory(dir)
      try {
        val (file, now) = write(dir, mine)
        val overlay = Seq(file.map(_.file).toSeq)
        ranges.drop(bins, _ => false, DepartedBins(now))
        val result = ranges.bringOrElse(bins)(bring) { e =>
          ranges.takeIn(overlay, now)
          throw new BinsNotBrought(bins, e)
        }
        Faults.at("rows.overlay", partition)
        ranges.takeIn(overlay, now - RowCounts.sum(mine.map(_.getValue.rows)))
        forget(bins)
        result
      } finally Utils.deleteRecursively(dir)
    }
  }

  /** Writes the rows that known keys have now, and deletions of those that are gone; returns how many there are. */
  private def write(dir: File, keys: Seq[java.util.Map.Entry[Array[Byte], Known]]): (Option[SstFile], RowCounts) = {
    val native = RocksDBFields.native(db)
    val files = new SstFiles(dir, db.conf)
    var counts = RowCounts.Zero
    try {
      keys.foreach { entry =>
        val known = entry.getValue
        // In the order that a file has; null is a deletion.
        val rows = new java.util.TreeMap[Array[Byte], Array[Byte]](KeyRows.Order)
        known.before.foreach(rows.put(_, null))
        foreachRow(native, entry.getKey, known.isPrefix) { (row, value) =>
          rows.put(row, value)
          ()
        }
        rows.forEach { (row, value) =>
          if (value == null) files.delete(row)
          else {
            files.put(row, value)
            counts += RowCounts.of(known.isInternal, 1)
          }
        }
      }
      (files.finish(isInternal = false), counts)
    } finally files.close()
  }

  /** The rows that a known key has now, each as a whole, also if it is merged of several parts. */
  private def foreachRow(native: NativeRocksDB, key: Array[Byte], isPrefix: Boolean)(
      consume: (Array[Byte], Array[Byte]) => Unit): Unit =
    if (!isPrefix) Option(native.get(key)).foreach(consume(key, _))
    else {
      val found = native.newIterator()
      try {
        found.seek(key)
        while (found.isValid && KeyRows.begins(found.key, key)) {
          consume(found.key, found.value)
          found.next()
        }
        found.status()
      } finally found.close()
    }

  /** No key of a family begins another one, and no prefix another. */
  private def isKnown(key: Array[Byte]): Boolean = {
    val before = known.floorEntry(key)
    before != null &&
    (if (before.getValue.isPrefix) KeyRows.begins(key, before.getKey) else java.util.Arrays.equals(key, before.getKey))
  }

  private def note(key: Array[Byte], of: Known): Unit = {
    known.put(key, of)
    size += 1 + of.before.size
    bytes += of.bytes(key)
  }

  private def numbered(family: String): NumberedFamily = families.getOrElseUpdate(
    family, ColumnFamily.numbered(db, db.hasFamilies).find(_.family.name == family).get)

  private def ofBin(family: NumberedFamily, bin: Int): java.util.NavigableMap[Array[Byte], Known] = {
    val (from, to) = family.ranges(Seq(bin)).head
    known.subMap(from, true, to, false)
  }

  private def forget(bins: Seq[Int]): Unit = {
    for (family <- families.values; bin <- bins) {
      val gone = ofBin(family, bin)
      gone.forEach { (key, of) =>
        size -= 1 + of.before.size
        bytes -= of.bytes(key)
      }
      gone.clear()
    }
    // A family that is made anew has another number.
    if (known.isEmpty) families.clear()
  }
}

/** Nothing of bins that came is in the database, which has what it had of them. */
private[binshift] final class BinsNotBrought(bins: Seq[Int], cause: Throwable)
  extends RuntimeException(s"bins ${bins.mkString(", ")} could not be taken in: ${cause.getMessage}", cause)

/**
 * @param isPrefix whether it is what the keys of several rows begin with
 * @param before   the keys of the rows that the old owner had at the switch
 */
private final case class Known(isPrefix: Boolean, isInternal: Boolean, before: Seq[Array[Byte]]) {
  def rows: RowCounts = RowCounts.of(isInternal, before.size)

  /** What is held in memory, where a single row shares the key. */
  def bytes(key: Array[Byte]): Long = key.length + (if (isPrefix) before.iterator.map(_.length.toLong).sum else 0)
}

private object KnownRows {
  /** With more, whole bins are the cheaper way. */
  private val MaxKeys = 500000
  private val MaxBytes = 64L << 20
}
