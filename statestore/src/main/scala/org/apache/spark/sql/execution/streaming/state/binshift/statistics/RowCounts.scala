package org.apache.spark.sql.execution.streaming.state.binshift.statistics

/** Rows of families that users see, and of families that Spark keeps for itself. */
private[sql] final case class RowCounts(rows: Long, internal: Long) {
  def +(o: RowCounts): RowCounts = RowCounts(rows + o.rows, internal + o.internal)
  def -(o: RowCounts): RowCounts = RowCounts(rows - o.rows, internal - o.internal)
}

private[sql] object RowCounts {
  val Zero: RowCounts = RowCounts(0, 0)
}
