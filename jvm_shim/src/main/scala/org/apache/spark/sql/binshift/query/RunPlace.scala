package org.apache.spark.sql.binshift.query

import org.apache.spark.sql.binshift.internals.CommittedEpoch
import org.apache.spark.sql.binshift.realtime.EpochProtocol
import org.apache.spark.sql.binshift.routing.{PlannedEpoch, RunState}
import org.apache.spark.sql.execution.streaming.runtime.StreamExecution
import org.apache.spark.sql.execution.streaming.state.binshift.checkpoint.{ControlDir, RunHistory}

/** Tells whether a run has its place in the checkpoint, or another run may have taken it. Any thread. */
private[binshift] final class RunPlace(query: StreamExecution, run: RunState, dir: ControlDir, protocol: EpochProtocol) {

  /**
   * True if the query continues with this run, as far as is known. For that, its first epoch must be one that no run had logged
   * before, or be committed; and no other run may have taken its place. Makes a request to the checkpoint.
   */
  def isNewest: Boolean = {
    val now = run.now
    !CommittedEpoch.isOfRunKnown(query) || (!mayRunAgain(now) || now.epoch.forall(hasCommitted)) && !isTaken
  }

  /**
   * True if another run may have taken the place of this one: it has begun with an epoch that this run has not committed. (A run
   * that was started by mistake begins with an epoch that this run has committed.) Spark ends this run when it tries to log an
   * epoch. Makes a request to the checkpoint.
   */
  def isTaken: Boolean = CommittedEpoch.isOfRunKnown(query) && run.now.epoch.nonEmpty &&
    RunHistory.read(dir).after(query.runId.toString).exists(later => !hasCommitted(later.epoch))

  /**
   * True if another run may be in the middle of the epoch. In real-time mode, that may be so at the first epoch of each run, so
   * it doesn't count.
   */
  def mayRunAgain(now: PlannedEpoch): Boolean = now.isAgain && !protocol.isRealTime

  private def hasCommitted(epoch: Long): Boolean = CommittedEpoch.ofThisRun(query).exists(_ >= epoch)
}
