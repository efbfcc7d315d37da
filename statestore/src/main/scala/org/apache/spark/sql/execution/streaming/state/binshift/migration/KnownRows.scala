package org.apache.spark.sql.execution.streaming.state.binshift.migration

import java.io.File
import java.util.UUID

import scala.collection.mutable
import scala.jdk.CollectionConverters._

import org.rocksdb.{RocksDB => NativeRocksDB, WriteBatch, WriteOptions}

import org.apache.spark.sql.execution.streaming.state.binshift.Faults
import org.apache.spark.sql.execution.streaming.state.binshift.keys.{ColumnFamily, Extent, KeyRows, NumberedFamily}
import org.apache.spark.sql.execution.streaming.state.binshift.shipping.FetchedRows
import org.apache.spark.sql.execution.streaming.state.binshift.statistics.{RowCounts, RowsByBin}
import org.apache.spark.sql.execution.streaming.state.binshift.storage._
import org.apache.spark.util.Utils

/**
 * The rows that a store has of bins that it owns but that haven't arrived yet. These are the rows of some keys, its *known* keys. If a
 * partitioning key has several rows in a family, either all of them are known or none ([[Extent]]).
 *
 * Invariants for a bin that hasn't arrived, where E is the version of its switch:
 *
 *  - for a known key, the database has the old owner's rows of version E, with what the query has made of them since, or none;
 *  - it has no rows of other keys;
 *  - fetched rows reach no changelog, so that a recovery, which takes the bin as of E, finds only what the query wrote;
 *  - the store counts the rows that the database has.
 *
 * A key becomes known before it is read or written. Used by the store's task. For families that are not read in order.
 */
private[binshift] final class KnownRows(
    db: BinKeyedRocksDB, partition: Int, memory: KeyMemory = KeyMemory.OfExecutor) {
  /** The known keys in their native form, in order. */
  private val known = new java.util.TreeMap[Array[Byte], Known](KeyRows.Order)
  private var size = 0L
  @volatile private var bytes = 0L
  private val ranges = new BinRows(db, db.hasFamilies)
  private val families = mutable.Map.empty[String, NumberedFamily]
  /** The place of the number in native keys, by family. It is the same for all keys of a family. */
  private val numbersAt = mutable.Map.empty[String, Extent.Numbered]

  /** True if the row of a key is known, or all rows whose keys begin with it. */
  def contains(family: String, key: Array[Byte]): Boolean =
    !known.isEmpty && find(family, numbered(family).nativeKey(key)).isDefined

  /** Called when a row is read or written; returns whether it is known. */
  def enter(family: String, key: Array[Byte]): Boolean = !known.isEmpty && {
    val row = numbered(family).nativeKey(key)
    val of = find(family, row)
    of.foreach(_.enter(row))
    of.isDefined
  }

  /** How many more keys may be known. They are bounded because all of them are in memory. */
  def room: Int =
    if (bytes < KnownRows.MaxBytes) math.max(0, math.min(KnownRows.MaxKeys - size, memory.left / KnownRows.KeyBytes)).toInt else 0

  /** Forgets everything, because the store was loaded from the checkpoint, or is closed. */
  def clear(): Unit = {
    known.clear()
    forgetFamilies()
    size = 0
    bytes = 0
  }

  /** The bytes of heap that the known keys take. May be called by any thread. */
  def bytesHeld: Long = bytes

  /** Adds the old owner's rows of keys that aren't known yet, in bins that haven't arrived. Keys may also turn out to have no rows. */
  def add(fetched: Seq[FetchedRows]): Unit = {
    val batch = new WriteBatch()
    val options = new WriteOptions().setDisableWAL(true)
    try {
      val present = RowsByBin()
      fetched.foreach { of =>
        val family = numbered(of.key.family)
        val key = family.nativeKey(of.key.key)
        if (find(of.key.family, key).isEmpty) {
          val extent = of.key.extent match {
            case numbered: Extent.Numbered =>
              val at = numbered.in(family)
              numbersAt(of.key.family) = at
              at
            case other => other
          }
          val before = of.rows.map { case (rest, value) =>
            val row = extent.rowKey(key, rest)
            batch.put(row, value)
            row
          }
          note(key, new Known(extent, family.family.isInternal, before.size, if (extent == Extent.Beginning) before else Nil))
          present.add(family.binOf(key), RowCounts.of(family.family.isInternal, before.size))
        }
      }
      RocksDBFields.native(db).write(options, batch)
      Faults.at("rows.add", partition)
      db.addRows(present)
    } finally {
      batch.close()
      options.close()
    }
  }

  /** How many rows of `bins` are known, plus the known keys without rows. */
  def count(bins: Seq[Int]): Long = {
    val sizes = for {
      family <- families.values.iterator
      bin <- bins.iterator
      of <- ofBin(family, bin).values.asScala.iterator
    } yield math.max(1L, of.numbers)
    sizes.sum
  }

  /**
   * Runs `bring`, which brings all rows of `bins` as of the switch, after the known rows were dropped. Then restores the known rows, which
   * win. The changelog doesn't record these again.
   *
   * @throws BinsNotBrought if `bring` failed and the database is as before; after any other exception, the database can't be used
   */
  def winOver[T](bins: Seq[Int])(bring: => T): T = {
    val mine = for {
      family <- families.values.toSeq.sortBy(_.prefix)(KeyRows.Order)
      bin <- bins.sorted
      keys = ofBin(family, bin)
      if !keys.isEmpty
    } yield family -> keys
    if (mine.isEmpty) bring
    else {
      val dir = new File(db.localRootDir.getParentFile, s"binshift-known-${UUID.randomUUID()}")
      Utils.createDirectory(dir)
      try {
        val overlay = Seq(write(dir, mine.map(_._2)).map(_.file).toSeq)
        val now = db.rowsByBin.of(bins)
        ranges.dropRanges(bins, _ => false)
        val result = ranges.bringOrElse(bins)(bring) { e =>
          ranges.takeIn(overlay, now)
          throw new BinsNotBrought(bins, e)
        }
        Faults.at("rows.overlay", partition)
        // The known rows replace those that have come, as many as the old owner had of them.
        for ((family, keys) <- mine; (key, of) <- keys.asScala) now.add(family.binOf(key), RowCounts.Zero - of.rows)
        ranges.takeIn(overlay, now)
        forget(bins)
        result
      } finally Utils.deleteRecursively(dir)
    }
  }

  /** Writes the present rows of known keys, and deletions of rows that are gone. */
  private def write(dir: File, ofBins: Seq[java.util.Map[Array[Byte], Known]]): Option[SstFile] = {
    val native = RocksDBFields.native(db)
    val files = new SstFiles(dir, db.conf)
    try {
      ofBins.foreach { keys =>
        // Sorted as a file requires, because numbered rows may be between those of other keys.
        val rows = new java.util.TreeMap[Array[Byte], Known](KeyRows.Order)
        keys.forEach((key, known) => rowKeys(native, key, known).foreach(rows.put(_, known)))
        rows.forEach { (row, known) =>
          val value = native.get(row)
          if (value != null) files.put(row, value)
          else if (known.extent != Extent.One || known.rowsBefore > 0) files.delete(row)
        }
      }
      files.finish()
    } finally files.close()
  }

  /** The keys of all rows that a known key has now, or that its bin may have. */
  private def rowKeys(native: NativeRocksDB, key: Array[Byte], known: Known): Iterator[Array[Byte]] = known.extent match {
    case Extent.One => Iterator(key)
    case at: Extent.Numbered => (0L until known.numbers).iterator.map(at.rowKey(key, _))
    case Extent.Beginning =>
      val now = mutable.ArrayBuffer.empty[Array[Byte]]
      val found = native.newIterator()
      try {
        found.seek(key)
        while (found.isValid && KeyRows.begins(found.key, key)) {
          now += found.key
          found.next()
        }
        found.status()
      } finally found.close()
      now.iterator ++ known.keysBefore
  }

  /** The known key of a row, given the row's native key. No key of a family is a prefix of another one. */
  private def find(family: String, row: Array[Byte]): Option[Known] = {
    val first = numbersAt.get(family).fold(row)(_.rowKey(row, 0L))
    Option(known.floorEntry(first)).filter { before =>
      if (before.getValue.extent == Extent.Beginning) KeyRows.begins(first, before.getKey)
      else java.util.Arrays.equals(first, before.getKey)
    }.map(_.getValue)
  }

  private def note(key: Array[Byte], of: Known): Unit = {
    if (known.isEmpty) memory.join(this)
    known.put(key, of)
    size += 1 + of.rowsBefore
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
        size -= 1 + of.rowsBefore
        bytes -= of.bytes(key)
      }
      gone.clear()
    }
    if (known.isEmpty) forgetFamilies()
  }

  /** Forgets the families, because one that is created again has another number. */
  private def forgetFamilies(): Unit = {
    families.clear()
    numbersAt.clear()
  }
}

/** Says that bins could not be brought in, and that the database is as it was before. */
private[binshift] final class BinsNotBrought(bins: Seq[Int], cause: Throwable)
  extends RuntimeException(s"bins ${bins.mkString(", ")} could not be taken in: ${cause.getMessage}", cause)

/**
 * @param rowsBefore how many rows the old owner had at the switch
 * @param keysBefore their keys, if they can't be derived
 */
private final class Known(
    val extent: Extent, val isInternal: Boolean, val rowsBefore: Int, val keysBefore: Seq[Array[Byte]]) {
  /** For numbered rows: all rows in the database have lower numbers than this. */
  var numbers: Long = rowsBefore

  /** Called when a row of this key is read or written. */
  def enter(row: Array[Byte]): Unit = extent match {
    case at: Extent.Numbered => numbers = math.max(numbers, at.numberOf(row) + 1)
    case _ => ()
  }

  def rows: RowCounts = RowCounts.of(isInternal, rowsBefore)

  /** Bytes that are held in memory. */
  def bytes(key: Array[Byte]): Long =
    KnownRows.KeyBytes + key.length + keysBefore.iterator.map(_.length + KnownRows.RowBytes).sum
}

private object KnownRows {
  /** With more keys than this, whole bins are cheaper. */
  private val MaxKeys = 500000
  private val MaxBytes = 128L << 20
  /** Bytes of heap for a key besides its own bytes: an entry of a tree, its value, and array headers. */
  val KeyBytes = 150L
  val RowBytes = 24L
}

/** Bounds the heap that the known keys of several stores take together; thread-safe. Stores that are gone don't count. */
private[binshift] final class KeyMemory(max: Long) {
  private val stores = new java.util.WeakHashMap[KnownRows, Unit]

  /** Called when the store has its first key. */
  def join(store: KnownRows): Unit = synchronized(stores.put(store, ()))

  def left: Long = synchronized(max - stores.keySet.asScala.iterator.map(_.bytesHeld).sum)
}

private[binshift] object KeyMemory {
  /** Bounded for the executor as a whole, because tasks of several stores may fetch rows at the same time, and heaps are small. */
  lazy val OfExecutor = new KeyMemory(Runtime.getRuntime.maxMemory / 8)
}
