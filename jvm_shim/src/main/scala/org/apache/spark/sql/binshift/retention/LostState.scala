package org.apache.spark.sql.binshift.retention

import org.apache.hadoop.fs.Path

import org.apache.spark.sql.binshift.internals.SparkInternals
import org.apache.spark.sql.execution.streaming.operators.stateful.StateStoreWriter
import org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution
import org.apache.spark.sql.execution.streaming.state.binshift.Faults
import org.apache.spark.sql.execution.streaming.state.binshift.checkpoint.{ControlDir, RunHistory}

/**
 * Deletes, at a start, the state that a later epoch would take for its own, although the epoch that made it is no longer in the logs.
 *
 * If files have ids in their names (checkpoint format 2), there is no such state, because nobody reads a version with an id that isn't
 * committed. Otherwise, names recur if somebody has taken epochs out of the logs. If E is the first epoch of the run,
 *
 *  - versions from E + 2 on are lost, because the logs have no epoch that made them;
 *  - files of version E + 1 that are older than `offsets/E` are lost. Newer ones were made by some run from E as it is logged, so they
 *    have the same content, whoever made them.
 *
 * Another run may continue with the checkpoint while this one lists and deletes. So this run looks at the logs after the files are
 * listed, because another run logs later epochs before it makes files of them. Before each delete, it looks for a newer claim, and
 * checks that the file is still the one that was listed. One gap remains, in a checkpoint that was just wound back: a driver may be
 * stopped between that check and the delete of one file.
 *
 * Metadata of operators has no ids. That of later epochs is deleted in both formats, in the same way.
 */
private[binshift] final class LostState(query: MicroBatchExecution, dir: ControlDir) {
  private val versions = new LostVersions(new Path(query.resolvedCheckpointRoot, "state"), dir.hadoopConf)

  /**
   * Called on the stream's thread, once the run has claimed its place.
   *
   * @param epoch         the first epoch of the run
   * @param loggedAtMs    when it was logged; `None` if that is not known
   * @param history       the runs before
   * @param requireNewest fails if another run has claimed its place since
   */
  def delete(epoch: Long, loggedAtMs: Option[Long], hasIds: Boolean, history: RunHistory, requireNewest: () => Unit): Unit = {
    val end = RunEnd.read(dir).filter(_.excludesLost(history, epoch, loggedAtMs))
    // If an epoch was logged, but its run ended before planning it, it has left no state either.
    val kept = if (end.exists(_.epoch == epoch)) epoch + 1 else epoch
    val later = if (hasIds) (if (end.isDefined) Nil else versions.metadataAfter(epoch))
    else if (end.isDefined) versions.unexpectedAfter(kept, epoch)
    else versions.after(epoch, epoch)
    lazy val loggedMs = versions.modifiedMs(new Path(query.resolvedCheckpointRoot, s"offsets/$epoch"))
    val lost = later.filter(file => file.version.forall(v => v > epoch + 1 || file.modifiedMs < loggedMs))
    if (lost.nonEmpty) {
      Faults.at("run.clean")
      SparkInternals.requireNewest(query, epoch, epoch)
      versions.delete(lost, requireNewest)
    }
  }
}

private[binshift] object LostState {

  /** True if versions from `epoch` on are read with ids. In a checkpoint that changes its format, the first one isn't. */
  def areIdsInNames(query: MicroBatchExecution, epoch: Long, operators: Seq[StateStoreWriter]): Boolean =
    query.sparkSessionForStream.sessionState.conf.stateStoreCheckpointFormatVersion >= 2 &&
      (epoch == 0 || operators.forall(_.getStateInfo.stateStoreCkptIds.isDefined))
}
