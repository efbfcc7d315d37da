package org.apache.spark.sql.execution.streaming.state.binshift.keys

import java.nio.{ByteBuffer, ByteOrder}

/**
 * The rows of a partitioning key in a column family.
 *
 * @param family the name of the family
 * @param key    a key in its stored form, without the number of the family; `extent` says which rows it stands for
 */
private[binshift] final case class KeyRows(family: String, key: Array[Byte], extent: Extent)

private[binshift] object KeyRows {
  /** The order of keys in a database. */
  val Order: Ordering[Array[Byte]] = (a, b) => java.util.Arrays.compareUnsigned(a, b)

  def begins(key: Array[Byte], prefix: Array[Byte]): Boolean =
    key.length >= prefix.length && java.util.Arrays.equals(key, 0, prefix.length, prefix, 0, prefix.length)
}

/** Tells which rows a key of [[KeyRows]] stands for. */
private[binshift] sealed trait Extent {
  /** The key of one of the rows; `rest` are the bytes that distinguish it from the others. */
  def rowKey(key: Array[Byte], rest: Array[Byte]): Array[Byte]
}

private[binshift] object Extent {
  /** The one row that has this key. */
  case object One extends Extent {
    override def rowKey(key: Array[Byte], rest: Array[Byte]): Array[Byte] = key
  }

  /** All rows whose keys begin with this key. */
  case object Beginning extends Extent {
    override def rowKey(key: Array[Byte], rest: Array[Byte]): Array[Byte] = key ++ rest
  }

  /**
   * Rows that are numbered from zero on without gaps. Their keys differ only in the number, which begins at byte `at`. The key
   * of [[KeyRows]] is that of number zero.
   */
  final case class Numbered(at: Int) extends Extent {
    override def rowKey(key: Array[Byte], rest: Array[Byte]): Array[Byte] = {
      val row = key.clone()
      System.arraycopy(rest, 0, row, at, Numbered.Width)
      row
    }

    def rowKey(key: Array[Byte], number: Long): Array[Byte] = rowKey(key, Numbered.bytesOf(number))

    def numberOf(row: Array[Byte]): Long = Numbered.in(row).getLong(at)

    /** The bytes that distinguish a row from the others of its key. */
    def restOf(row: Array[Byte]): Array[Byte] = java.util.Arrays.copyOfRange(row, at, at + Numbered.Width)

    /** The same for keys that begin with the number of their family. */
    def in(family: NumberedFamily): Numbered = Numbered(at + family.prefix.length)
  }

  object Numbered {
    val Width: Int = java.lang.Long.BYTES

    def bytesOf(number: Long): Array[Byte] = {
      val bytes = new Array[Byte](Width)
      in(bytes).putLong(0, number)
      bytes
    }

    /** Finds the number by comparing the keys of number zero and of -1; `None` if they also differ elsewhere. */
    def of(zero: Array[Byte], minusOne: Array[Byte]): Option[Numbered] = {
      val at = java.util.Arrays.mismatch(zero, minusOne)
      Option.when(at >= 0 && at + Width <= zero.length)(Numbered(at))
        .filter(where => java.util.Arrays.equals(where.rowKey(zero, -1L), minusOne))
    }

    /** Relies on Spark: numbers in an `UnsafeRow` are in the processor's byte order. */
    private def in(row: Array[Byte]): ByteBuffer = ByteBuffer.wrap(row).order(ByteOrder.nativeOrder)
  }
}
