package org.apache.spark.sql.execution.streaming.state.binshift.shipping

/** How far a [[StagedCopy]] has come. */
private[binshift] sealed trait CopyState

private[binshift] object CopyState {
  /** Rows come from the source's executor. */
  case object Fetching extends CopyState
  /** The rows that had arrived were dropped. The checkpoint has to be read, once the base is committed. */
  case object Damaged extends CopyState
  /** The checkpoint is being read. */
  case object Reading extends CopyState
  /** All rows of the base are here, perhaps those of an attempt that wasn't committed. */
  case object Fetched extends CopyState
  /** The copy is complete, and follows its source if it is made ahead. */
  case object Staged extends CopyState
  /** There will be no copy, or it is closed. */
  case object Failed extends CopyState

  /** A copy that fails is made again from the checkpoint, never once more from the source's executor. */
  val Next: Map[CopyState, Set[CopyState]] = Map(
    Fetching -> Set(Fetched, Damaged, Failed),
    // Something else may fail before it is made again.
    Damaged -> Set(Reading, Damaged, Failed),
    Reading -> Set(Fetched, Damaged, Failed),
    Fetched -> Set(Staged, Damaged, Failed),
    Staged -> Set(Damaged, Failed),
    Failed -> Set(Failed))
}
