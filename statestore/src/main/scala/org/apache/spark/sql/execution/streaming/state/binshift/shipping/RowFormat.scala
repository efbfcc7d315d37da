package org.apache.spark.sql.execution.streaming.state.binshift.shipping

import java.io.{ByteArrayInputStream, ByteArrayOutputStream, DataInputStream, DataOutputStream, IOException}

import org.apache.spark.sql.execution.streaming.state.binshift.keys.{Extent, KeyRows}
import org.apache.spark.storage.BlockManagerId

/**
 * The format of requests for single rows, and of the answers.
 *
 * {{{
 *   request = crc32c of all that follows : long, base : long, receiver : long, number : int,
 *             executor : utf, host : utf, port : int, families : int, (name : utf, number or -1 : short)*, keys : int,
 *             (place of the family : int, -1 for one row, -2 for all that begin so, or where they have their number : int,
 *              length : int, key)*
 *   answer  = crc32c of all that follows : long, base : long, attempt : utf, isLast : boolean,
 *             keys : int, (rows, or -1 if they are too many : int, (length : int, rest of the key, length : int, value)*)*
 * }}}
 *
 * An answer has the rows of a request's keys in their order, and may come in pieces. An empty attempt means that there will be no
 * rows. Keys are in the form of [[org.apache.spark.sql.execution.streaming.state.binshift.keys.BinKeyCodec]], and values are in
 * their stored form. The rest of a key distinguishes a row from others of the requested key.
 */
private[binshift] object RowFormat {
  import Checksummed._

  private val One = -1
  private val Beginning = -2

  def encode(r: RowRequest): Array[Byte] = sealing { out =>
    out.writeLong(r.base)
    out.writeLong(r.receiver)
    out.writeInt(r.number)
    out.writeUTF(r.from.executorId)
    out.writeUTF(r.from.host)
    out.writeInt(r.from.port)
    val families = r.keys.map(_.family).distinct
    out.writeInt(families.size)
    families.foreach { name =>
      out.writeUTF(name)
      out.writeShort(r.numbers.get(name).flatten.getOrElse(-1: Short).toInt)
    }
    out.writeInt(r.keys.size)
    r.keys.foreach { key =>
      out.writeInt(families.indexOf(key.family))
      out.writeInt(codeOf(key.extent))
      write(out, key.key)
    }
  }

  /** @throws DamagedShipment if it is no request, or was changed on its way */
  def request(bytes: Array[Byte]): RowRequest = opened(bytes) { in =>
    val (base, receiver, number) = (in.readLong(), in.readLong(), in.readInt())
    val from = BlockManagerId(in.readUTF(), in.readUTF(), in.readInt())
    val numbered = IndexedSeq.fill(size(in, 2 * java.lang.Short.BYTES)) {
      val name = in.readUTF()
      name -> Some(in.readShort()).filter(_ != -1)
    }
    val families = numbered.map(_._1)
    val keys = IndexedSeq.fill(size(in, 3 * Integer.BYTES)) {
      val (family, extent) = (in.readInt(), in.readInt())
      check(families.isDefinedAt(family), s"it has ${families.size} families, and no family $family")
      val key = read(in, size(in, 1))
      check(extent >= Beginning && (extent < 0 || extent <= key.length - Extent.Numbered.Width),
        s"rows of a key have their number at $extent")
      KeyRows(families(family), key, extentOf(extent))
    }
    RowRequest(base, receiver, number, from, keys, numbered.toMap)
  }

  def encode(a: RowAnswer): Array[Byte] = sealing { out =>
    out.writeLong(a.base)
    out.writeUTF(a.attempt)
    out.writeBoolean(a.isLast)
    out.writeInt(a.rows.size)
    a.rows.foreach { found =>
      out.writeInt(found.fold(-1)(_.size))
      for ((rest, value) <- found.getOrElse(Nil)) {
        write(out, rest)
        write(out, value)
      }
    }
  }

  /** @throws DamagedShipment if it is no answer, or was changed on its way */
  def answer(bytes: Array[Byte]): RowAnswer = opened(bytes) { in =>
    val (base, attempt, isLast) = (in.readLong(), in.readUTF(), in.readBoolean())
    RowAnswer(base, attempt, isLast,
      IndexedSeq.fill(size(in, Integer.BYTES)) {
        in.mark(Integer.BYTES)
        if (in.readInt() == -1) None
        else {
          in.reset()
          Some(IndexedSeq.fill(size(in, 2 * Integer.BYTES))((read(in, size(in, 1)), read(in, size(in, 1)))))
        }
      })
  }

  private def codeOf(extent: Extent): Int = extent match {
    case Extent.One => One
    case Extent.Beginning => Beginning
    case Extent.Numbered(at) => at
  }

  private def extentOf(code: Int): Extent = code match {
    case One => Extent.One
    case Beginning => Extent.Beginning
    case at => Extent.Numbered(at)
  }

  private def sealing(write: DataOutputStream => Unit): Array[Byte] = {
    val bytes = new ByteArrayOutputStream()
    val out = new DataOutputStream(bytes)
    out.writeLong(0)
    write(out)
    seal(bytes.toByteArray)
  }

  private def opened[T](bytes: Array[Byte])(body: DataInputStream => T): T = {
    val in = new DataInputStream(new ByteArrayInputStream(bytes))
    try {
      check(bytes.length >= CrcBytes && in.readLong() == crcOf(bytes), "its checksum is wrong")
      body(in)
    } catch {
      case e: IOException => throw new DamagedShipment(s"it is cut off, or has no text where it should ($e)")
    }
  }

  private def write(out: DataOutputStream, bytes: Array[Byte]): Unit = {
    out.writeInt(bytes.length)
    out.write(bytes)
  }

  private def read(in: DataInputStream, length: Int): Array[Byte] = {
    val bytes = new Array[Byte](length)
    in.readFully(bytes)
    bytes
  }

  /** Reads the number of items of `width` bytes, and checks that the remaining bytes have room for them. */
  private def size(in: DataInputStream, width: Int): Int = {
    val n = in.readInt()
    check(n >= 0 && n <= in.available() / width, s"it has something of size $n in ${in.available()} bytes")
    n
  }
}

/**
 * @param base     the version whose rows are wanted
 * @param receiver identifies who asks, because several attempts of a task may do so
 * @param number   number of the request among the receiver's
 * @param from     where to send the answer
 * @param numbers  the receiver's numbers of its families; `None` for the family of a store without families
 */
private[binshift] final case class RowRequest(
    base: Long, receiver: Long, number: Int, from: BlockManagerId, keys: IndexedSeq[KeyRows],
    numbers: Map[String, Option[Short]])

/**
 * @param attempt identifies the commit of the rows; see [[CommittedFile]]
 * @param rows    for each key, its rows' values, each with the rest of the row's key; `None` if there are too many to send
 */
private[binshift] final case class RowAnswer(
    base: Long, attempt: String, isLast: Boolean, rows: IndexedSeq[Option[Seq[(Array[Byte], Array[Byte])]]])
