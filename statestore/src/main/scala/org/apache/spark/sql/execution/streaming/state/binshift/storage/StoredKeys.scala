package org.apache.spark.sql.execution.streaming.state.binshift.storage

import org.apache.spark.sql.execution.streaming.state.ByteArrayPair
import org.apache.spark.util.NextIterator

/**
 * The parts of the database that operations on rows need. The parameters of these operations differ between versions of Spark
 * ([[RowOperations]]).
 *
 * Called for each row.
 */
private[binshift] trait StoredKeys {

  /** The key of a row that is read. */
  protected def stored(key: Array[Byte], family: String): Array[Byte]

  /**
   * Runs `write` with the stored key of a row, and counts what it did. Refuses a row whose bin belongs to another partition.
   *
   * @param bytes    bytes that are written
   * @param appended how many of them are merged into the existing row
   */
  protected def writing(key: Array[Byte], family: String, bytes: Int, appended: Int = 0)(write: Array[Byte] => Unit): Unit

  /** Runs `scan` on the range, and returns its rows with keys as Spark encoded them. */
  protected def scanned(start: Option[Array[Byte]], end: Option[Array[Byte]], family: String)(
      scan: (Option[Array[Byte]], Option[Array[Byte]]) => NextIterator[ByteArrayPair]): NextIterator[ByteArrayPair]

  protected final def lengthOf(values: List[Array[Byte]]): Int = values.foldLeft(0)(_ + _.length)

  /** Throws, because that is better than reading in a wrong order. */
  protected def unsupported(operation: String): Nothing
}
