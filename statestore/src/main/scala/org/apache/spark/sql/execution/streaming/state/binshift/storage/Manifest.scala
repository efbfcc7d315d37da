package org.apache.spark.sql.execution.streaming.state.binshift.storage

import java.io.ByteArrayOutputStream
import java.nio.{ByteBuffer, ByteOrder}
import java.util.zip.CRC32C

import scala.collection.mutable

/**
 * RocksDB's list of the files of a database, which has the range of keys of each file. So one can tell which files have wanted keys
 * before any of them is fetched. If the other files are removed from the list, the database opens without them.
 *
 * A file without wanted keys in its range doesn't affect reads of wanted keys: the range includes any ranges that the file deletes.
 *
 * Relies on RocksDB: the format of its log files and of version edits (`db/log_format.h`, `db/version_edit.cc`), which it keeps
 * readable from release to release. Anything unknown throws `Manifest.Unknown`, and nothing is changed.
 */
private[binshift] final class Manifest private (records: Seq[Seq[Manifest.Field]]) {
  import Manifest._

  /** The ranges of keys, both ends inclusive, of all files that ever were in the database, by number. */
  val files: Map[Long, (Array[Byte], Array[Byte])] =
    records.flatten.collect { case Added(number, from, to, _) => number -> (from, to) }.toMap

  /** The same list without files. */
  def without(numbers: Set[Long]): Array[Byte] = {
    val out = new ByteArrayOutputStream
    records.foreach { record =>
      val kept = record.filter {
        case Added(number, _, _, _) => !numbers(number)
        case Deleted(number, _) => !numbers(number)
        case Other(_) => true
      }
      writeRecord(kept.map(_.bytes).foldLeft(Array.emptyByteArray)(_ ++ _), out)
    }
    out.toByteArray
  }
}

private[binshift] object Manifest {
  final class Unknown(what: String) extends RuntimeException(s"the list of files is of a form that is not known: $what")

  private sealed trait Field { def bytes: Array[Byte] }
  private final case class Added(number: Long, from: Array[Byte], to: Array[Byte], bytes: Array[Byte]) extends Field
  private final case class Deleted(number: Long, bytes: Array[Byte]) extends Field
  private final case class Other(bytes: Array[Byte]) extends Field

  private val BlockBytes = 32 << 10
  private val HeaderBytes = 7
  private val (full, first, middle, last) = (1, 2, 3, 4)
  private val Comparator = 1
  private val CompactCursor = 5
  private val DeletedFile = 6
  private val NewFile4 = 103
  private val InAtomicGroup = 300
  /** Fields of a single number: of logs, of the next file, of the last change, of the largest family. */
  private val Numbers = Set(2, 3, 4, 9, 10, 203)
  /** Fields from this tag on carry their length, so that releases that do not know them can skip them. */
  private val SkippableFrom = 1 << 13
  private val EndOfFile4 = 1
  private val SequenceBytes = 8

  def parse(content: Array[Byte]): Manifest = new Manifest(recordsOf(content).map(fieldsOf))

  private def recordsOf(content: Array[Byte]): Seq[Array[Byte]] = {
    val in = ByteBuffer.wrap(content).order(ByteOrder.LITTLE_ENDIAN)
    val records = mutable.Buffer.empty[Array[Byte]]
    val open = new ByteArrayOutputStream
    var isOpen = false
    while (in.remaining >= HeaderBytes) {
      val left = BlockBytes - in.position() % BlockBytes
      if (left < HeaderBytes) in.position(in.position() + math.min(left, in.remaining))
      else {
        val crc = in.getInt
        val length = in.getShort & 0xffff
        val kind = in.get.toInt
        if (length > in.remaining) throw new Unknown("it is cut off")
        val data = new Array[Byte](length)
        in.get(data)
        if (crc != checksum(kind, data)) throw new Unknown("a checksum does not match")
        if ((kind == full || kind == first) == isOpen) throw new Unknown("a record is not whole")
        if (kind < full || kind > last) throw new Unknown(s"a record of kind $kind")
        open.write(data)
        isOpen = kind == first || kind == middle
        if (!isOpen) {
          records += open.toByteArray
          open.reset()
        }
      }
    }
    if (isOpen) throw new Unknown("it ends within a record")
    records.toSeq
  }

  private def fieldsOf(record: Array[Byte]): Seq[Field] = {
    val in = ByteBuffer.wrap(record)
    val fields = mutable.Buffer.empty[Field]
    while (in.hasRemaining) {
      val start = in.position()
      def bytes: Array[Byte] = java.util.Arrays.copyOfRange(record, start, in.position())
      val tag = varint(in)
      (if (tag.isValidInt) tag.toInt else throw new Unknown(s"a field of tag $tag")) match {
        case Comparator =>
          val name = new String(slice(in))
          if (name != "leveldb.BytewiseComparator") throw new Unknown(s"keys in the order $name")
          fields += Other(bytes)
        case tag if Numbers(tag) =>
          varint(in)
          fields += Other(bytes)
        case CompactCursor =>
          varint(in)
          slice(in)
          fields += Other(bytes)
        case InAtomicGroup =>
          varint(in)
          fields += Other(bytes)
        case DeletedFile =>
          varint(in)
          val number = varint(in)
          fields += Deleted(number, bytes)
        case NewFile4 =>
          varint(in)
          val number = varint(in)
          varint(in)
          val (from, to) = (userKey(slice(in)), userKey(slice(in)))
          varint(in)
          varint(in)
          while (varint(in) != EndOfFile4) slice(in)
          fields += Added(number, from, to, bytes)
        case tag if tag >= SkippableFrom =>
          slice(in)
          fields += Other(bytes)
        case tag => throw new Unknown(s"a field of tag $tag")
      }
    }
    fields.toSeq
  }

  private def writeRecord(record: Array[Byte], out: ByteArrayOutputStream): Unit = {
    var at = 0
    var isFirst = true
    do {
      val left = BlockBytes - out.size % BlockBytes
      if (left < HeaderBytes) out.write(new Array[Byte](left))
      else {
        val n = math.min(left - HeaderBytes, record.length - at)
        val isLast = at + n == record.length
        val kind = if (isFirst) { if (isLast) full else first }
        else if (isLast) last
        else middle
        val data = java.util.Arrays.copyOfRange(record, at, at + n)
        val header = ByteBuffer.allocate(HeaderBytes).order(ByteOrder.LITTLE_ENDIAN)
        out.write(header.putInt(checksum(kind, data)).putShort(n.toShort).put(kind.toByte).array)
        out.write(data)
        isFirst = false
        at += n
      }
    } while (at < record.length || isFirst)
  }

  /** The masked checksum of log files. */
  private def checksum(kind: Int, data: Array[Byte]): Int = {
    val crc = new CRC32C
    crc.update(kind)
    crc.update(data)
    val value = crc.getValue.toInt
    ((value >>> 15) | (value << 17)) + 0xa282ead8
  }

  private def userKey(internal: Array[Byte]): Array[Byte] = {
    if (internal.length < SequenceBytes) throw new Unknown("a key without its sequence number")
    java.util.Arrays.copyOf(internal, internal.length - SequenceBytes)
  }

  private def varint(in: ByteBuffer): Long = {
    var value = 0L
    var shift = 0
    var byte = next(in)
    while (byte < 0) {
      if (shift >= java.lang.Long.SIZE) throw new Unknown("a number has more than 64 bits")
      value |= (byte & 0x7fL) << shift
      shift += 7
      byte = next(in)
    }
    value | (byte.toLong << shift)
  }

  private def next(in: ByteBuffer): Byte = if (in.hasRemaining) in.get else throw new Unknown("a field is cut off")

  private def slice(in: ByteBuffer): Array[Byte] = {
    val length = varint(in)
    if (length < 0 || length > in.remaining) throw new Unknown("a field is cut off")
    val out = new Array[Byte](length.toInt)
    in.get(out)
    out
  }
}
