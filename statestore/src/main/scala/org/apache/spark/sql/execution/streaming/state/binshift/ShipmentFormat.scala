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
 *             base : long, attempt : utf, index : int, families : short, family*, section*, -1 : int
 *   family  = name : utf, isInternal : boolean, isNumbered : boolean, number : short
 *   section = step : int, position of family : short, row*, -1 : int
 *   row     = key length : int, value length : int, key, value
 * }}}
 *
 * Keys are in the form of [[BinKeyCodec]], without the family's number; values as they are stored.
 */
private[binshift] object ShipmentFormat {
  private val Magic = 0x62736866
  private val Format = 1
  private val CrcBytes = 8
  private val IsLastAt = CrcBytes + 5

  /** Relies on Spark: block ids of broadcasts may end in letters, digits and underscores. */
  def chunkId(broadcast: Long, source: StateStoreId, target: Int, index: Int): BlockId =
    block(broadcast, source, s"q${target}_c$index")

  /** A block that is there as long as `source` has more to send. */
  def markerId(broadcast: Long, source: StateStoreId): BlockId =
    block(broadcast, source, "sending")

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

    /** Begins a part of the shipment, which may stay empty. */
    def enter(step: Int, family: Int): Unit = if (!section.contains((step, family))) {
      endSection()
      out.writeInt(step)
      out.writeShort(family)
      section = Some((step, family))
    }

    def write(step: Int, family: Int, key: Array[Byte], value: Array[Byte]): Unit = {
      enter(step, family)
      out.writeInt(key.length)
      out.writeInt(value.length)
      out.write(key)
      out.write(value)
      if (bytes.size >= chunkBytes) {
        end(isLast = false)
        begin()
      }
    }

    def close(): Unit = end(isLast = true)

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
      if (section.isDefined) out.writeInt(-1)
      section = None
    }

    private def end(isLast: Boolean): Unit = {
      endSection()
      out.writeInt(-1)
      val chunk = bytes.toByteArray
      chunk(IsLastAt) = if (isLast) 1 else 0
      ByteBuffer.wrap(chunk).putLong(0, crcOf(chunk))
      publish(index, chunk)
      index += 1
    }
  }

  /**
   * Reads a chunk; tells each part that begins to `enter(step)`, and hands each row to
   * `consume(step, family of the source, key, value)`.
   *
   * @throws DamagedShipment if it is not the chunk that is expected, whole and unchanged
   */
  def read(chunk: Array[Byte], base: Long, index: Int)(enter: Int => Unit)(
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
    var step = in.readInt()
    while (step >= 0) {
      val family = families(in.readShort().toInt)
      enter(step)
      var length = in.readInt()
      while (length >= 0) {
        val key = new Array[Byte](length)
        val value = new Array[Byte](in.readInt())
        in.readFully(key)
        in.readFully(value)
        consume(step, family, key, value)
        length = in.readInt()
      }
      step = in.readInt()
    }
    ChunkHeader(attempt, isLast, families)
  } catch {
    case e: EOFException => throw new DamagedShipment(s"it is cut off ($e)")
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
