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

  protected def formOf(family: String): FamilyWrites

  /** The key of a row that is written; one whose bin is another partition's is refused. */
  protected def storedAsOwner(key: Array[Byte], form: FamilyWrites): Array[Byte]

  /** The rows before a write, for `wrote`. */
  protected def rowsOf(form: FamilyWrites): Long

  /** See [[org.apache.spark.sql.execution.streaming.state.binshift.statistics.BinCounts.wrote]]. */
  protected def wrote(form: FamilyWrites, before: Long, bytes: Int, appended: Int): Unit

  /** Runs `scan` on the range, and gives its rows with keys as Spark encoded them. */
  protected def scanned(start: Option[Array[Byte]], end: Option[Array[Byte]], family: String)(
      scan: (Option[Array[Byte]], Option[Array[Byte]]) => NextIterator[ByteArrayPair]): NextIterator[ByteArrayPair]

  /** Failing beats reading in a wrong order. */
  protected def unsupported(operation: String): Nothing
}
