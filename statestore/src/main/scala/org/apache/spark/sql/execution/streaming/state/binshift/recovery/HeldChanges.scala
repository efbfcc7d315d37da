package org.apache.spark.sql.execution.streaming.state.binshift.recovery

import java.io._
import java.nio.file.Files

import scala.collection.mutable

import org.apache.spark.sql.execution.streaming.state.RecordType
import org.apache.spark.sql.execution.streaming.state.binshift.keys.NumberedFamily

/**
 * Records of a changelog that were read ahead. They are in memory up to a number of bytes, and the rest is in a file.
 *
 * Created by one thread and used by another one.
 */
private[binshift] final class HeldChanges private (inMemory: Seq[Change], rest: Option[HeldChanges.Rest]) extends AutoCloseable {
  def foreach(consume: Change => Unit): Unit = {
    inMemory.foreach(consume)
    rest.foreach(_.foreach(consume))
  }

  /** True if there are more than memory holds. */
  def isInFile: Boolean = rest.isDefined

  override def close(): Unit = rest.foreach(r => Files.deleteIfExists(r.file.toPath))
}

private[binshift] object HeldChanges {
  private val BufferBytes = 1 << 16
  private val NoValue = -1

  /**
   * Takes all `changes`.
   *
   * @param file     created if needed; its directory must exist
   * @param maxBytes bytes of keys and values that stay in memory
   */
  def of(changes: Iterator[Change], file: File, maxBytes: Long): HeldChanges = {
    val inMemory = Vector.newBuilder[Change]
    var bytes = 0L
    while (bytes < maxBytes && changes.hasNext) {
      val change = changes.next()
      bytes += change.bytes
      inMemory += change
    }
    new HeldChanges(inMemory.result(), Option.when(changes.hasNext)(write(changes, file)))
  }

  private def write(changes: Iterator[Change], file: File): Rest = {
    val families = mutable.LinkedHashMap.empty[NumberedFamily, Int]
    var records = 0L
    try {
      val out = new DataOutputStream(new BufferedOutputStream(new FileOutputStream(file), BufferBytes))
      try changes.foreach { change =>
          out.writeByte(change.kind.id)
          out.writeInt(families.getOrElseUpdate(change.family, families.size))
          out.writeInt(change.key.length)
          out.write(change.key)
          out.writeInt(Option(change.value).fold(NoValue)(_.length))
          if (change.value != null) out.write(change.value)
          records += 1
        }
      finally out.close()
    } catch {
      case e: Throwable =>
        file.delete()
        throw e
    }
    new Rest(file, families.keys.toIndexedSeq, records)
  }

  /** @param families families by their numbers in the file */
  private final class Rest(val file: File, families: IndexedSeq[NumberedFamily], records: Long) {
    def foreach(consume: Change => Unit): Unit = {
      val in = new DataInputStream(new BufferedInputStream(new FileInputStream(file), BufferBytes))
      try {
        var left = records
        while (left > 0) {
          val kind = RecordType(in.readByte())
          val family = families(in.readInt())
          consume(Change(kind, family, read(in, in.readInt()),
              in.readInt() match {
                case NoValue => null
                case length => read(in, length)
              }))
          left -= 1
        }
      } finally in.close()
    }

    private def read(in: DataInputStream, length: Int): Array[Byte] = {
      val bytes = new Array[Byte](length)
      in.readFully(bytes)
      bytes
    }
  }
}
