package org.apache.spark.sql.execution.streaming.state.binshift.shipping

import java.nio.ByteBuffer
import java.util.zip.CRC32C

/** The format of everything that travels between executors: bytes that begin with the CRC32C of the rest. */
private[shipping] object Checksummed {
  /** Bytes of the checksum at the front. */
  val CrcBytes = 8

  /** Writes the checksum of the rest to the front, for which the caller has left room. Returns the same array. */
  def seal(bytes: Array[Byte]): Array[Byte] = {
    ByteBuffer.wrap(bytes).putLong(0, crcOf(bytes))
    bytes
  }

  def crcOf(bytes: Array[Byte]): Long = {
    val crc = new CRC32C()
    crc.update(bytes, CrcBytes, bytes.length - CrcBytes)
    crc.getValue
  }

  /** @throws DamagedShipment with `message` unless it `holds` */
  def check(holds: Boolean, message: => String): Unit = if (!holds) throw new DamagedShipment(message)
}
