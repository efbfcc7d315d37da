package org.apache.spark.sql.execution.streaming.state.binshift.migration

import java.io._
import java.nio.charset.StandardCharsets.UTF_8
import java.util.Arrays
import java.util.HexFormat

import scala.util.Using

import org.rocksdb.{RocksDB => NativeRocksDB}

import org.apache.spark.sql.catalyst.expressions.XXH64
import org.apache.spark.sql.execution.streaming.state.RocksDB
import org.apache.spark.sql.execution.streaming.state.binshift.keys.{BinKeyCodec, ColumnFamily, NumberedFamily}
import org.apache.spark.sql.execution.streaming.state.binshift.storage.RowForm
import org.apache.spark.unsafe.Platform

/**
 * The rows that a database has at the moment when this object is made. A background thread notes them while the store goes on.
 *
 * The store's task creates it. RocksDB can't close a database that has a snapshot, so this object has to be closed before the
 * database. Closing interrupts the thread that reads, and waits only for a moment.
 */
private[migration] final class AuditedRows(
    db: RocksDB, native: NativeRocksDB, families: Seq[NumberedFamily]) extends AutoCloseable {
  private val snapshot = native.getSnapshot
  private var isOpen = true
  @volatile private var isWanted = true

  /**
   * Notes each row of `bins` in a file, in the order of families and keys.
   *
   * @param pause called with the number of bytes that were read
   * @throws AuditDropped if the database is closed before all rows are noted
   */
  def note(bins: Seq[Int], file: File)(pause: (Long, () => Boolean) => Unit): Unit = synchronized {
    if (!isOpen) throw closed
    Using.resource(new DataOutputStream(new BufferedOutputStream(new FileOutputStream(file)))) { out =>
      for (family <- families)
        family.foreachRow(native, native.getDefaultColumnFamily, bins, Some(snapshot),
          bytes => {
            if (!isWanted) throw closed
            pause(bytes, () => isWanted)
          }) { (key, value) => NotedRow.of(db, family, family.keyIn(key), value).write(out) }
    }
  }

  /** Releases the snapshot, so that the database can be closed. */
  override def close(): Unit = {
    isWanted = false
    synchronized {
      if (isOpen) {
        isOpen = false
        if (native.isOwningHandle) native.releaseSnapshot(snapshot)
        snapshot.close()
      }
    }
  }

  private def closed = new AuditDropped("its store was closed or loaded anew")
}

/** Thrown when an audit can't be made; `getMessage` gives the reason. */
private[migration] final class AuditDropped(reason: String) extends RuntimeException(reason)

/**
 * The part of a row that is compared.
 *
 * @param key    with its bin, but without the number of its family, which differs between partitions
 * @param digest 128 bits of the values without their checksums, which depend on that number
 */
private[migration] final class NotedRow(val family: String, val key: Array[Byte], val digest: (Long, Long)) {

  def write(out: DataOutput): Unit = {
    out.writeUTF(family)
    out.writeInt(key.length)
    out.write(key)
    out.writeLong(digest._1)
    out.writeLong(digest._2)
  }

  def isSame(other: NotedRow): Boolean = family == other.family && Arrays.equals(key, other.key) && digest == other.digest

  def isBefore(other: NotedRow): Boolean =
    if (family != other.family) family < other.family else Arrays.compareUnsigned(key, other.key) < 0

  def bin: Int = BinKeyCodec.of(family).binOf(key)

  /** The key as Spark encoded it, for people who search for it. */
  def text: String = {
    // Cut off, because the message to the driver has room for 64 KB of text.
    val stripped = BinKeyCodec.of(family).stripBin(key).take(NotedRow.KeyBytes)
    val printable = new String(stripped, UTF_8).filter(c => c >= ' ' && c != '\uFFFD' && c < '\u007f')
    val hex = HexFormat.of.formatHex(stripped)
    s"$hex ('$printable')" + (if (family == ColumnFamily.Default.name) "" else s" of $family")
  }
}

private[migration] object NotedRow {
  private val KeyBytes = 128
  private val Seeds = (42L, 1640531527L)

  def of(db: RocksDB, family: NumberedFamily, key: Array[Byte], value: Array[Byte]): NotedRow = {
    val values = RowForm.valuesIn(db, key, value)
    def hash(seed: Long) = values.foldLeft(seed)((h, v) => XXH64.hashUnsafeBytes(v, Platform.BYTE_ARRAY_OFFSET, v.length, h))
    new NotedRow(family.family.name, key, (hash(Seeds._1), hash(Seeds._2)))
  }

  /** The noted rows, in their order. */
  def read(in: DataInputStream): Iterator[NotedRow] = Iterator.continually {
    in.mark(1)
    val isOver = in.read() < 0
    if (!isOver) in.reset()
    Option.when(!isOver) {
      val family = in.readUTF()
      val key = in.readNBytes(in.readInt())
      new NotedRow(family, key, (in.readLong(), in.readLong()))
    }
  }.takeWhile(_.isDefined).flatten
}

/** Compares rows with the noted rows, both in the same order, and finds the first row that isn't in both. */
private[migration] final class RowComparison(noted: Iterator[NotedRow]) {
  private var found = Option.empty[NotedRow]

  def next(row: NotedRow): Unit = if (found.isEmpty) {
    val mine = noted.nextOption()
    if (!mine.exists(_.isSame(row))) found = Some(mine.filter(_.isBefore(row)).getOrElse(row))
  }

  /** The first row that differs, if any; called after the last row. */
  def difference: Option[NotedRow] = {
    if (found.isEmpty) found = noted.nextOption()
    found
  }
}
