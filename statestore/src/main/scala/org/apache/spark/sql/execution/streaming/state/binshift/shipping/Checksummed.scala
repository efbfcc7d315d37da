package org.apache.spark.sql.execution.streaming.state.binshift.shipping

import java.nio.ByteBuffer
import java.util.zip.CRC32C

/** What travels between executors: bytes that begin with the CRC32C of all that follows. */
private[shipping] object Checksummed {
  /** Before what is summed. */
  val CrcBytes = 8

  /** Puts the checksum of what follows in front, where there is room for it; returns the same array. */
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
