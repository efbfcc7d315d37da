package org.apache.spark.sql.binshift.retention

import org.apache.hadoop.fs.Path

import org.apache.spark.sql.binshift.internals.SparkInternals
import org.apache.spark.sql.execution.streaming.operators.stateful.StateStoreWriter
import org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution
import org.apache.spark.sql.execution.streaming.state.binshift.Faults
import org.apache.spark.sql.execution.streaming.state.binshift.checkpoint.{ControlDir, RunHistory}

/**
 * What a start deletes: state that a later epoch would take for its own, though the query has forgotten the epoch that made it.
 *
 * With ids in the names of files (checkpoint format 2) there is none, as nobody reads a version under an id that is not committed. Without
 * them, names recur where somebody has taken epochs out of the logs. If E is the first epoch of the run,
 *
 *  - versions from E + 2 on are lost, because the logs have no epoch that made them;
 *  - of version E + 1, files that are older than `offsets/E` are lost. Newer ones were made by some run of E as it is logged, which has
 *    the same content, whoever made them.
 *
 * Another run may go on with the checkpoint while this one lists and deletes. So the logs are looked at once the files are listed:
 * what another run makes of later epochs comes after these are logged. Each delete is preceded by a look for a newer claim, and at
 * the file, which is to be the one that was listed. What remains is a driver that is stopped between that look and the
 * delete of one file, in a checkpoint that was just wound back.
 *
 * Metadata of operators has no ids; that of later epochs goes in both formats, in the same way.
 */
private[binshift] final class LostState(query: MicroBatchExecution, dir: ControlDir) {
  private val versions = new LostVersions(new Path(query.resolvedCheckpointRoot, "state"), dir.hadoopConf)

  /**
   * Called on the stream's thread, once the run has claimed its place.
   *
   * @param epoch         the first one of the run
   * @param isAgain       whether an earlier run has logged it, or may be in the midst of it
   * @param history       the runs before
   * @param requireNewest fails if another run has claimed its place since
   */
  def delete(epoch: Long, isAgain: Boolean, hasIds: Boolean, history: RunHistory, requireNewest: () => Unit): Unit = {
    val end = RunEnd.read(dir).filter(_.excludesLost(history, epoch, isAgain))
    // An epoch that was logged, and not planned before its run ended, has left no state either.
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

  /** Whether versions from `epoch` on are read under ids; in a checkpoint that changes its format, the first one is not. */
  def areIdsInNames(query: MicroBatchExecution, epoch: Long, operators: Seq[StateStoreWriter]): Boolean =
    query.sparkSessionForStream.sessionState.conf.stateStoreCheckpointFormatVersion >= 2 &&
      (epoch == 0 || operators.forall(_.getStateInfo.stateStoreCkptIds.isDefined))
}
