package org.apache.spark.sql.execution.streaming.state.binshift.shipping

import java.io.File

import scala.collection.mutable
import scala.jdk.CollectionConverters._

import org.rocksdb.{BlockBasedTableConfig, BloomFilter, Options, ReadOptions, RocksDB => NativeRocksDB, RocksDBException, RocksIterator}

import org.apache.spark.sql.execution.streaming.state.RocksDBConf
import org.apache.spark.sql.execution.streaming.state.binshift.keys.{Extent, KeyRows, NumberedFamily}
import org.apache.spark.sql.execution.streaming.state.binshift.storage.{RocksDBFields, RowForm}

/** A linked version, opened to look up rows. Thread-safe. */
private[shipping] final class LinkedRows(dir: File, families: Seq[NumberedFamily], conf: RocksDBConf) extends AutoCloseable {
  import LinkedRows._

  /** True if rows have checksums, which cover the number of their family. */
  private val areChecked = RowForm.hasChecksums(conf)
  private val numbered = families.map(f => f.family.name -> f).toMap
  private val merging = RocksDBFields.mergeOperator(conf)
  private val bloom = new BloomFilter()
  private val options =
    new Options().setMergeOperator(merging).setTableFormatConfig(new BlockBasedTableConfig().setFilterPolicy(bloom))
  private val reading = new ReadOptions()
  private val db =
    try NativeRocksDB.openReadOnly(options, dir.getPath)
    catch {
      case e: RocksDBException =>
        closeOptions()
        throw e
    }
  private var users = 0
  private var isClosed = false

  /** Runs `body` unless this is closed. Closing takes effect after the last body that runs. */
  def use[T](body: LinkedRows => T): Option[T] = {
    val isOpen = synchronized {
      if (!isClosed) users += 1
      !isClosed
    }
    if (!isOpen) None
    else
      try Some(body(this))
      finally synchronized {
          users -= 1
          if (isClosed && users == 0) closeAll()
        }
  }

  /**
   * The rows of the first of `keys`, and of as many of the following ones as are sent together; none if the family doesn't exist. Omits
   * rows that are too many to be sent, and rows whose checksum would be wrong at the receiver.
   *
   * @param numbers the receiver's numbers of families, by name
   */
  def first(keys: IndexedSeq[KeyRows], numbers: Map[String, Option[Short]]): IndexedSeq[Found] = {
    val found = mutable.ArrayBuffer.empty[Found]
    val rows = db.newIterator(reading)
    try {
      var (bytes, isFull) = (0L, false)
      val all = read(rows, keys, numbers)
      while (!isFull && all.hasNext) {
        val of = all.next()
        val size = of.fold(0L)(sizeOf)
        isFull = found.nonEmpty && bytes + size > MaxBytes
        if (!isFull) {
          val sendable = of.filter(_ => size <= MaxBytes)
          found += sendable
          if (sendable.isDefined) bytes += size
        }
      }
      found.toIndexedSeq
    } finally rows.close()
  }

  /** The rows of each key. Read when the iterator reaches the key, or another one that is looked up with it. */
  private def read(rows: RocksIterator, keys: IndexedSeq[KeyRows], numbers: Map[String, Option[Short]]): Iterator[Found] = {
    val native = keys.map(k => numbered.get(k.family).map(_.nativeKey(k.key)))
    for {
      some <- keys.indices.grouped(LookedUpTogether)
      // The only row of a key, or the one with number zero.
      values = get(some.filter(keys(_).extent != Extent.Beginning).flatMap(i => native(i).map(i -> _)))
      i <- some.iterator
    } yield {
      val family = numbered.get(keys(i).family)
      if (areChecked && family.exists(f => !numbers.get(keys(i).family).contains(f.number))) None
      else keys(i).extent match {
        case Extent.One => Some(values.get(i).map(Array.emptyByteArray -> _).toSeq)
        case Extent.Beginning => native(i).fold[Found](Some(Nil))(under(rows, _))
        case at: Extent.Numbered => values.get(i).fold[Found](Some(Nil))(series(native(i).get, at.in(family.get), _))
      }
    }
  }

  /** Numbered rows, of which `first` is number zero. Looks up some at a time, and twice as many the next time. */
  private def series(key: Array[Byte], at: Extent.Numbered, first: Array[Byte]): Found = {
    val found = mutable.ArrayBuffer(Extent.Numbered.bytesOf(0) -> first)
    var bytes = sizeOf(found.toSeq)
    var isWhole = false
    while (!isWhole && bytes <= MaxBytes) {
      val numbers = found.size.toLong until found.size + math.min(found.size, NumbersTogether).toLong
      val values = db.multiGetAsList(reading, numbers.map(at.rowKey(key, _)).asJava).asScala.takeWhile(_ != null)
      val rows = numbers.map(Extent.Numbered.bytesOf).zip(values)
      found ++= rows
      bytes += sizeOf(rows)
      isWhole = rows.size < numbers.size
    }
    Option.when(bytes <= MaxBytes)(found.toSeq)
  }

  private def get(keys: IndexedSeq[(Int, Array[Byte])]): Map[Int, Array[Byte]] =
    if (keys.isEmpty) Map.empty
    else {
      val found = db.multiGetAsList(reading, keys.map(_._2).asJava).asScala
      keys.iterator.map(_._1).zip(found.iterator).filter(_._2 != null).toMap
    }

  /** Reads one row more than the bound, to know whether there are too many. */
  private def under(rows: RocksIterator, prefix: Array[Byte]): Found = {
    val found = mutable.ArrayBuffer.empty[(Array[Byte], Array[Byte])]
    var bytes = 0L
    rows.seek(prefix)
    while (rows.isValid && bytes <= MaxBytes && KeyRows.begins(rows.key, prefix)) {
      val row = (java.util.Arrays.copyOfRange(rows.key, prefix.length, rows.key.length), rows.value)
      found += row
      bytes += sizeOf(Seq(row))
      rows.next()
    }
    rows.status()
    Option.when(bytes <= MaxBytes)(found.toSeq)
  }

  override def close(): Unit = synchronized {
    val wasOpen = !isClosed
    isClosed = true
    if (wasOpen && users == 0) closeAll()
  }

  private def closeAll(): Unit = {
    db.close()
    closeOptions()
  }

  private def closeOptions(): Unit = Seq(reading, options, bloom, merging).foreach(_.close())
}

private[shipping] object LinkedRows {
  /** Each row's value, with the rest of the row's key; `None` if there are too many rows. */
  type Found = Option[Seq[(Array[Byte], Array[Byte])]]

  /** Bytes that are sent together. */
  private val MaxBytes = 4L << 20
  /** Keys that are looked up together. Rows that don't fit into a piece are read again for the next one. */
  private val LookedUpTogether = 16
  /** The most rows of a key that are looked up together. */
  private val NumbersTogether = 64

  def sizeOf(rows: Seq[(Array[Byte], Array[Byte])]): Long = rows.iterator.map(row => row._1.length + row._2.length + 8L).sum
}
