package org.apache.spark.sql.execution.streaming.state.binshift.storage

import org.apache.spark.sql.execution.streaming.state.ByteArrayPair
import org.apache.spark.util.NextIterator

/**
 * What the operations on rows, whose parameters differ between versions of Spark ([[RowOperations]]), ask the database.
 *
 * On the path of each row.
 */
private[binshift] trait StoredKeys {

  /** The key of a row that is read. */
  protected def stored(key: Array[Byte], family: String): Array[Byte]

  /**
   * Runs `write` with the stored key of a row, and counts what it did; a row whose bin is another partition's is refused.
   *
   * @param bytes    those that the row is written with
   * @param appended those of them that are merged to what the row has
   */
  protected def writing(key: Array[Byte], family: String, bytes: Int, appended: Int = 0)(write: Array[Byte] => Unit): Unit

  /** Runs `scan` on the range, and gives its rows with keys as Spark encoded them. */
  protected def scanned(start: Option[Array[Byte]], end: Option[Array[Byte]], family: String)(
      scan: (Option[Array[Byte]], Option[Array[Byte]]) => NextIterator[ByteArrayPair]): NextIterator[ByteArrayPair]

  protected final def lengthOf(values: List[Array[Byte]]): Int = values.foldLeft(0)(_ + _.length)

  /** Failing beats reading in a wrong order. */
  protected def unsupported(operation: String): Nothing
}
