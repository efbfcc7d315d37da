package org.apache.spark.sql.execution.streaming.state.binshift

import java.io.{ByteArrayInputStream, ByteArrayOutputStream, DataInputStream, DataOutputStream, EOFException}
import java.nio.ByteBuffer
import java.util.zip.CRC32C

import org.apache.spark.sql.execution.streaming.state.StateStoreId
import org.apache.spark.storage.BlockId

/**
 * The pieces in which bins travel. A shipment goes from one partition's store to another's and is a
 * sequence of chunks, each a block in Spark's block store of the sender's executor.
 *
 * {{{
 *   chunk   = crc32c of all that follows : long, magic : int, format : byte, isLast : boolean,
 *             base : long, attempt : utf, index : int, families : short, family*, (section | end)*, -1 : int
 *   family  = name : utf, isInternal : boolean, isNumbered : boolean, number : short
 *   section = part : int, position of family : short, row*, -1 : int
 *   row     = key length : int, value length : int, key, value
 *   end     = -2 : int, part : int, bins : int, (bin : int)*
 * }}}
 *
 * A part is a step of the order. On demand it is some bins that travel together, and its end says which.
 *
 * Keys are in the form of [[BinKeyCodec]], without the family's number; values as they are stored.
 */
private[binshift] object ShipmentFormat {
  private val Magic = 0x62736866
  private val Format = 1
  private val CrcBytes = 8
  private val End = -1
  private val EndOfPart = -2
  private val IsLastAt = CrcBytes + 5

  /** Relies on Spark: block ids of broadcasts may end in letters, digits and underscores. */
  def chunkId(broadcast: Long, source: StateStoreId, target: Int, index: Int): BlockId =
    block(broadcast, source, s"q${target}_c$index")

  /** A block that is there as long as `source` has more to send; see [[ShipmentMarker]]. */
  def markerId(broadcast: Long, source: StateStoreId): BlockId =
    block(broadcast, source, "sending")

  /** A block by which partition `target` asks `source` for a bin: the bin, and the number of the receiver. */
  def wishId(broadcast: Long, source: StateStoreId, target: Int, index: Int): BlockId =
    block(broadcast, source, s"q${target}_w$index")

  private def block(broadcast: Long, source: StateStoreId, what: String): BlockId = {
    val store = source.storeName.filter(_.isLetterOrDigit)
    BlockId(s"broadcast_${broadcast}_o${source.operatorId}_${store}_p${source.partitionId}_$what")
  }

  /**
   * Writes chunks of about `chunkBytes`; `publish` gets each, with its index.
   *
   * @param attempt  tells which commit of the source the rows are of; see [[CommittedFile]]
   * @param families families of the source; rows name theirs by its position
   */
  final class Writer(
      base: Long, attempt: String, families: Seq[NumberedFamily], chunkBytes: Int,
      publish: (Int, Array[Byte]) => Unit) {
    private val bytes = new ByteArrayOutputStream(1 << 16)
    private val out = new DataOutputStream(bytes)
    private var index = 0
    private var section: Option[(Int, Int)] = None
    begin()

    def write(part: Int, family: Int, key: Array[Byte], value: Array[Byte]): Unit = {
      enter(part, family)
      out.writeInt(key.length)
      out.writeInt(value.length)
      out.write(key)
      out.write(value)
      if (bytes.size >= chunkBytes) {
        end(isLast = false)
        begin()
      }
    }

    /** All rows of `part`, which is `bins`, are written; what was written is published. */
    def endPart(part: Int, bins: Seq[Int]): Unit = {
      endSection()
      out.writeInt(EndOfPart)
      (Seq(part, bins.size) ++ bins).foreach(out.writeInt)
      end(isLast = false)
      begin()
    }

    def close(): Unit = end(isLast = true)

    private def enter(part: Int, family: Int): Unit = if (!section.contains((part, family))) {
      endSection()
      out.writeInt(part)
      out.writeShort(family)
      section = Some((part, family))
    }

    private def begin(): Unit = {
      bytes.reset()
      out.writeLong(0)
      out.writeInt(Magic)
      out.writeByte(Format)
      out.writeBoolean(false)
      out.writeLong(base)
      out.writeUTF(attempt)
      out.writeInt(index)
      out.writeShort(families.size)
      families.foreach { f =>
        out.writeUTF(f.family.name)
        out.writeBoolean(f.family.isInternal)
        out.writeBoolean(f.number.isDefined)
        out.writeShort(f.number.getOrElse(0: Short).toInt)
      }
    }

    private def endSection(): Unit = {
      if (section.isDefined) out.writeInt(End)
      section = None
    }

    private def end(isLast: Boolean): Unit = {
      endSection()
      out.writeInt(End)
      val chunk = bytes.toByteArray
      chunk(IsLastAt) = if (isLast) 1 else 0
      ByteBuffer.wrap(chunk).putLong(0, crcOf(chunk))
      publish(index, chunk)
      index += 1
    }
  }

  /**
   * Reads a chunk; hands each row to `consume(part, family of the source, key, value)`, and each end of
   * a part to `ended(part, bins)`.
   *
   * @throws DamagedShipment if it is not the chunk that is expected, whole and unchanged
   */
  def read(chunk: Array[Byte], base: Long, index: Int)(ended: (Int, Seq[Int]) => Unit)(
      consume: (Int, NumberedFamily, Array[Byte], Array[Byte]) => Unit): ChunkHeader = try {
    val in = new DataInputStream(new ByteArrayInputStream(chunk))
    check(in.readLong() == crcOf(chunk), "its checksum is wrong")
    check(in.readInt() == Magic && in.readByte() == Format, "it is of another binshift version")
    val isLast = in.readBoolean()
    check(in.readLong() == base, "it is of another version of the state")
    val attempt = in.readUTF()
    check(in.readInt() == index, "it is out of order")
    val families = IndexedSeq.fill(in.readShort().toInt) {
      val family = ColumnFamily(in.readUTF(), in.readBoolean())
      val isNumbered = in.readBoolean()
      val number = in.readShort()
      NumberedFamily(family, Option.when(isNumbered)(number))
    }
    var part = in.readInt()
    while (part != End) {
      if (part == EndOfPart) {
        ended(in.readInt(), Seq.fill(in.readInt())(in.readInt()))
      } else {
        val (rowsOf, family) = (part, families(in.readShort().toInt))
        readRows(in, (key, value) => consume(rowsOf, family, key, value))
      }
      part = in.readInt()
    }
    ChunkHeader(attempt, isLast, families)
  } catch {
    case e: EOFException => throw new DamagedShipment(s"it is cut off ($e)")
  }

  private def readRows(in: DataInputStream, consume: (Array[Byte], Array[Byte]) => Unit): Unit = {
    var length = in.readInt()
    while (length != End) {
      val key = new Array[Byte](length)
      val value = new Array[Byte](in.readInt())
      in.readFully(key)
      in.readFully(value)
      consume(key, value)
      length = in.readInt()
    }
  }

  private def crcOf(chunk: Array[Byte]): Long = {
    val crc = new CRC32C()
    crc.update(chunk, CrcBytes, chunk.length - CrcBytes)
    crc.getValue
  }

  private def check(holds: Boolean, message: String): Unit = if (!holds) throw new DamagedShipment(message)
}

private[binshift] final case class ChunkHeader(
    attempt: String, isLast: Boolean, families: IndexedSeq[NumberedFamily])

/** A shipment that cannot be used; the bins come from the checkpoint instead. */
private[binshift] final class DamagedShipment(message: String) extends RuntimeException(message)
