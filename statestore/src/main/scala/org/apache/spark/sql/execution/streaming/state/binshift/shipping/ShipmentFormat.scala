package org.apache.spark.sql.execution.streaming.state.binshift.shipping

import java.io.{ByteArrayInputStream, ByteArrayOutputStream, DataInputStream, DataOutputStream, EOFException, UTFDataFormatException}
import java.nio.{BufferUnderflowException, ByteBuffer}

import net.jpountz.lz4.{LZ4Exception, LZ4Factory}

import org.apache.spark.sql.execution.streaming.state.binshift.keys.{ColumnFamily, NumberedFamily}
import org.apache.spark.sql.execution.streaming.state.StateStoreId
import org.apache.spark.storage.BlockId

/**
 * The format in which bins travel. A shipment goes from one partition's store to another's. It is a sequence of chunks, each of which
 * is a block in the block store of the sender's executor.
 *
 * {{{
 *   chunk   = crc32c of all that follows : long, magic : int, format : byte, isLast : boolean, size of body : int,
 *             body, by LZ4
 *   body    = base : long, attempt : utf, index : int, families : short, family*, (section | end)*, -1 : int
 *   family  = name : utf, isInternal : boolean, isNumbered : boolean, number : short
 *   section = part : int, position of family : short, row*, -1 : int
 *   row     = key length : int, value length : int, key, value
 *   end     = -2 : int, part : int, bins : int, (bin : int)*
 * }}}
 *
 * A part is a step of the order or, on demand, some bins that travel together; then its end says which bins.
 *
 * Keys are in the form of [[BinKeyCodec]], without the family's number; values as they are stored.
 *
 * Relies on Spark: LZ4 is on its class path.
 */
private[binshift] object ShipmentFormat {
  import Checksummed._

  private val Magic = 0x62736866
  private val Format = 2
  private val End = -1
  private val EndOfPart = -2
  /** Bytes before the body. */
  private val HeadBytes = CrcBytes + 2 * Integer.BYTES + 2
  /** LZ4 expands a byte to no more than this. */
  private val MaxRatio = 255L
  /** The initial size of a buffer, in bytes. */
  private val FirstBytes = 1 << 14
  private val lz4 = LZ4Factory.fastestInstance()

  /** Relies on Spark: block ids of broadcasts may end in letters, digits and underscores. */
  def chunkId(broadcast: Long, source: StateStoreId, target: Int, index: Int, sender: Long): BlockId =
    block(broadcast, source, s"q${target}_c${index}_$sender")

  /** The block that says how much `source` has sent; see [[ShipmentMarker]]. */
  def markerId(broadcast: Long, source: StateStoreId): BlockId =
    block(broadcast, source, "sending")

  /** A block by which partition `target` asks `source` for a bin: the bin, and the number of the receiver. */
  def requestId(broadcast: Long, source: StateStoreId, target: Int, index: Int): BlockId =
    block(broadcast, source, s"q${target}_r$index")

  /** A block by which a store of partition `target` asks `source` for rows; see [[RowClient]]. */
  def askId(broadcast: Long, source: StateStoreId, target: Int, slot: Int): BlockId =
    block(broadcast, source, s"q${target}_k$slot")

  /** A block by which partition `target` tells `source` how many chunks it has: that number; see [[SentChunks]]. */
  def receivedId(broadcast: Long, source: StateStoreId, target: Int, sender: Long): BlockId =
    block(broadcast, source, s"q${target}_n$sender")

  /** A block by which partition `target` tells `source` that it wants no more chunks, whatever it says; see [[SentChunks]]. */
  def givenUpId(broadcast: Long, source: StateStoreId, target: Int, sender: Long): BlockId =
    block(broadcast, source, s"q${target}_g$sender")

  /** A piece of the answer to request `request` of a receiver. */
  def answerId(broadcast: Long, source: StateStoreId, target: Int, receiver: Long, request: Int, piece: Int): BlockId =
    block(broadcast, source, s"q${target}_a${receiver}_${request}_$piece")

  private def block(broadcast: Long, source: StateStoreId, what: String): BlockId = {
    val store = source.storeName.filter(_.isLetterOrDigit)
    BlockId(s"broadcast_${broadcast}_o${source.operatorId}_${store}_p${source.partitionId}_$what")
  }

  /**
   * Writes chunks of about `chunkBytes` before compression. `publish` gets each chunk, with its index and uncompressed size.
   *
   * @param attempt  identifies the commit of the rows; see [[CommittedFile]]
   * @param families families of the source; rows refer to theirs by its position
   */
  final class Writer(
      base: Long, attempt: String, families: Seq[NumberedFamily], chunkBytes: Int,
      publish: (Int, Array[Byte], Int) => Unit) {
    // Uses a buffer, because a stream takes a lock for each byte of a number.
    private var out = ByteBuffer.allocate(FirstBytes)
    private var index = 0
    /** The part and the family of the rows that are being written, if any are. */
    private var sectionPart = End
    private var sectionFamily = End
    begin()

    def write(part: Int, family: Int, key: Array[Byte], value: Array[Byte]): Unit = {
      enter(part, family)
      reserve(2 * Integer.BYTES + key.length + value.length)
      out.putInt(key.length).putInt(value.length).put(key).put(value)
      if (out.position() >= chunkBytes) {
        end(isLast = false)
        begin()
      }
    }

    /** Ends `part`, which consists of `bins`, and publishes what was written. */
    def endPart(part: Int, bins: Seq[Int]): Unit = {
      endSection()
      reserve((3 + bins.size) * Integer.BYTES)
      (Seq(EndOfPart, part, bins.size) ++ bins).foreach(out.putInt)
      end(isLast = false)
      begin()
    }

    def close(): Unit = end(isLast = true)

    private def enter(part: Int, family: Int): Unit = if (part != sectionPart || family != sectionFamily) {
      endSection()
      reserve(Integer.BYTES + java.lang.Short.BYTES)
      out.putInt(part).putShort(family.toShort)
      sectionPart = part
      sectionFamily = family
    }

    private def begin(): Unit = {
      val bytes = new ByteArrayOutputStream()
      val header = new DataOutputStream(bytes)
      header.writeLong(base)
      header.writeUTF(attempt)
      header.writeInt(index)
      header.writeShort(families.size)
      families.foreach { f =>
        header.writeUTF(f.family.name)
        header.writeBoolean(f.family.isInternal)
        header.writeBoolean(f.number.isDefined)
        header.writeShort(f.number.getOrElse(0: Short).toInt)
      }
      out.clear()
      reserve(bytes.size)
      out.put(bytes.toByteArray)
    }

    private def endSection(): Unit = if (sectionPart != End) {
      reserve(Integer.BYTES)
      out.putInt(End)
      sectionPart = End
    }

    /** Makes room for `bytes` more bytes. */
    private def reserve(bytes: Int): Unit = if (out.remaining < bytes) {
      val larger = ByteBuffer.allocate(math.max(2 * out.capacity, out.position() + bytes))
      out = larger.put(out.flip())
    }

    private def end(isLast: Boolean): Unit = {
      endSection()
      reserve(Integer.BYTES)
      out.putInt(End)
      val compressor = lz4.fastCompressor()
      val chunk = ByteBuffer.allocate(HeadBytes + compressor.maxCompressedLength(out.position()))
      chunk.putLong(0).putInt(Magic).put(Format.toByte).put((if (isLast) 1 else 0).toByte).putInt(out.position())
      val size = out.position()
      compressor.compress(out.flip(), chunk)
      publish(index, seal(java.util.Arrays.copyOf(chunk.array, chunk.position())), size)
      index += 1
    }
  }

  /**
   * Reads a chunk. Passes each row to `consume(part, family of the source, key, value)`, and each end of a part to `ended(part, bins)`.
   *
   * @throws DamagedShipment if it isn't the expected chunk, or is incomplete or changed
   */
  def read(chunk: Array[Byte], base: Long, index: Int)(ended: (Int, Seq[Int]) => Unit)(
      consume: (Int, NumberedFamily, Array[Byte], Array[Byte]) => Unit): ChunkHeader =
    try {
      check(chunk.length >= HeadBytes && ByteBuffer.wrap(chunk).getLong == crcOf(chunk), "its checksum is wrong")
      val start = ByteBuffer.wrap(chunk).position(CrcBytes)
      check(start.getInt() == Magic && start.get() == Format, "it is of another binshift version")
      val isLast = start.get() != 0
      val body = decompressed(start)
      val head = new DataInputStream(new ByteArrayInputStream(body))
      check(head.readLong() == base, "it is of another version of the state")
      val attempt = head.readUTF()
      check(head.readInt() == index, "it is out of order")
      val families = IndexedSeq.fill(head.readShort().toInt) {
        val family = ColumnFamily(head.readUTF(), head.readBoolean())
        val isNumbered = head.readBoolean()
        val number = head.readShort()
        NumberedFamily(family, Option.when(isNumbered)(number))
      }
      // Uses a buffer, because a stream takes a lock for each byte of a number.
      val in = ByteBuffer.wrap(body).position(body.length - head.available())
      var part = in.getInt()
      while (part != End) {
        if (part == EndOfPart) {
          ended(in.getInt(), Seq.fill(sizeIn(in, Integer.BYTES))(in.getInt()))
        } else {
          val (rowsOf, at) = (part, in.getShort().toInt)
          check(families.indices.contains(at), s"it has no family $at")
          readRows(in, (key, value) => consume(rowsOf, families(at), key, value))
        }
        part = in.getInt()
      }
      ChunkHeader(attempt, isLast, families)
    } catch {
      case e @ (_: EOFException | _: BufferUnderflowException | _: UTFDataFormatException) =>
        throw new DamagedShipment(s"it is cut off, or has no text where it should ($e)")
    }

  /** The uncompressed size of a chunk, if its head can be read. */
  def sizeOf(chunk: Array[Byte]): Int =
    if (chunk.length < HeadBytes) chunk.length else math.max(0, ByteBuffer.wrap(chunk).getInt(HeadBytes - Integer.BYTES))

  private def decompressed(in: ByteBuffer): Array[Byte] = {
    val size = in.getInt()
    // Checked before memory is allocated, as with rows.
    check(size >= 0 && size <= in.remaining * MaxRatio, s"it has $size bytes in ${in.remaining}")
    val body = new Array[Byte](size)
    try {
      val length = lz4.safeDecompressor().decompress(in.array, in.position(), in.remaining, body, 0)
      check(length == size, s"it has $length bytes and not $size")
    } catch { case e: LZ4Exception => throw new DamagedShipment(s"it cannot be decompressed ($e)") }
    body
  }

  private def readRows(in: ByteBuffer, consume: (Array[Byte], Array[Byte]) => Unit): Unit = {
    var length = in.getInt()
    while (length != End) {
      // Checked before memory is allocated, because a checksum doesn't help against a malicious sender. Key and value
      // together may still be longer than the rest; then reading fails.
      check(length >= 0 && length <= in.remaining, s"it has a key of $length bytes")
      val key = new Array[Byte](length)
      val value = new Array[Byte](sizeIn(in, 1))
      in.get(key).get(value)
      consume(key, value)
      length = in.getInt()
    }
  }

  /** Reads the number of items of `width` bytes, and checks that the remaining bytes have room for them. */
  private def sizeIn(in: ByteBuffer, width: Int): Int = {
    val size = in.getInt()
    check(size >= 0 && size <= in.remaining / width, s"it has something of size $size in ${in.remaining} bytes")
    size
  }

}

private[binshift] final case class ChunkHeader(
    attempt: String, isLast: Boolean, families: IndexedSeq[NumberedFamily])

/** A shipment that can't be used. The bins come from the checkpoint instead. */
private[binshift] final class DamagedShipment(message: String) extends RuntimeException(message)
