package org.apache.spark.sql.execution.streaming.state.binshift.statistics

/** A number of rows that is counted in the background. Thread-safe. */
private[binshift] trait LaterCount {
  /** True if the counting has ended, successfully or not. */
  def isOver: Boolean

  /** The number of rows; `None` until all are counted, and for ever if the counting fails. */
  def rows: Option[RowCounts]

  /** An estimate to be used until the rows are counted. */
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
