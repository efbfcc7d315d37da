package org.apache.spark.sql.execution.streaming.state.binshift.statistics

/** Rows of families that users see, and of families that Spark keeps for itself. */
private[sql] final case class RowCounts(rows: Long, internal: Long) {
  def +(o: RowCounts): RowCounts = RowCounts(rows + o.rows, internal + o.internal)
  def all: Long = rows + internal
  def -(o: RowCounts): RowCounts = RowCounts(rows - o.rows, internal - o.internal)
}

private[sql] object RowCounts {
  val Zero: RowCounts = RowCounts(0, 0)

  /** `n` rows of one family. */
  def of(isInternal: Boolean, n: Long): RowCounts = if (isInternal) RowCounts(0, n) else RowCounts(n, 0)

  def sum(counts: Iterable[RowCounts]): RowCounts = counts.foldLeft(Zero)(_ + _)
}
