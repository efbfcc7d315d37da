package org.apache.spark.sql.execution.streaming.state.binshift.statistics

/** Rows that are counted in the background. Thread-safe. */
private[binshift] trait LaterCount {
  /** Whether nothing more is counted. */
  def isOver: Boolean

  /** `None` until all are counted, and if they never are. */
  def rows: Option[RowCounts]

  /** About how many they are, for as long as they are not counted. */
  def expected: RowCounts
}

private[binshift] object LaterCount {
  def sum(counts: Seq[LaterCount]): LaterCount = new LaterCount {
    override def isOver: Boolean = counts.forall(_.isOver)
    override def rows: Option[RowCounts] =
      Option.when(counts.forall(_.rows.nonEmpty))(RowCounts.sum(counts.flatMap(_.rows)))
    override def expected: RowCounts = RowCounts.sum(counts.map(_.expected))
  }
}
