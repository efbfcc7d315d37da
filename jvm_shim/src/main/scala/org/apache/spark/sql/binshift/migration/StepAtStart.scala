package org.apache.spark.sql.binshift.migration

import org.apache.spark.internal.Logging
import org.apache.spark.sql.binshift.internals.{CommittedEpoch, LoggedBatch, SparkInternals}
import org.apache.spark.sql.binshift.internals.StreamLogs.Offsets
import org.apache.spark.sql.binshift.routing.EntryInForce
import org.apache.spark.sql.execution.streaming.{AvailableNowTrigger, OneTimeTrigger}
import org.apache.spark.sql.execution.streaming.runtime.StreamExecution
import org.apache.spark.sql.execution.streaming.state.binshift.checkpoint.RunHistory
import org.apache.spark.sql.internal.SQLConf

/**
 * Handles migrations of queries whose runs end by themselves. Such a run may have a single epoch. A step that this epoch makes durable
 * for the next one takes effect in the next run, or never.
 */
private[binshift] object StepAtStart extends Logging {

  /** True if runs of the query end once they have processed the available data. */
  def endsByItself(query: StreamExecution): Boolean = query.trigger == AvailableNowTrigger || query.trigger == OneTimeTrigger

  /**
   * Makes the first epoch of the run begin with the partitions of the step that the last run made durable for it, if the migration is
   * still under way. Called on the stream's thread, before Spark reads the log of offsets to start.
   *
   * Other queries plan such a step again, with copies, because the epoch after a restart has to load all state in any case.
   *
   * @param last    the newest epoch of the log of offsets, whose entry is `offsets`
   * @return whether the partitions differ from those of `last`
   *
   * Relies on Spark: the log keeps its last entries in memory, and the run copies the number of partitions from there.
   */
  def take(query: StreamExecution, last: LoggedBatch, offsets: Offsets): Boolean = {
    val isCommitted = endsByItself(query) && CommittedEpoch.of(query) >= last.epoch
    val isBinned = last.providerClass.exists(SparkInternals.isBinshiftProvider)
    val wanted = if (isCommitted && isBinned) partitionsOfStep(query, last) else None
    val keepsLogs = SparkInternals.keepsLogs(query)
    if (wanted.nonEmpty && !keepsLogs) {
      logWarning(
        s"query ${query.id}: the step to ${wanted.mkString} partitions, which the last run has prepared, has to be planned " +
          s"again; if each run has a single epoch, set ${SQLConf.STREAMING_METADATA_CACHE_ENABLED.key}=true, because the " +
          "step never takes effect without it")
    }
    val partitions = wanted.filter(_ => keepsLogs)
    partitions.foreach { n =>
      SparkInternals.goOnWith(query, last.epoch, offsets, SQLConf.SHUFFLE_PARTITIONS.key -> n.toString)
      logInfo(s"query ${query.id}: epoch ${last.epoch + 1} begins with $n partitions, as the last run has planned")
    }
    partitions.isDefined
  }

  private def partitionsOfStep(query: StreamExecution, last: LoggedBatch): Option[Int] = {
    val dir = SparkInternals.controlDir(query)
    for {
      n <- last.partitions
      // Entries left over from epochs that were taken out of the logs must not be used.
      entry <- new EntryInForce(query, dir, RunHistory.read(dir), isRealTime = false, PlannedMigration.isUnderWay(dir, _))
        .prepared(last.epoch + 1) if entry.table.partitions != n
    } yield entry.table.partitions
  }
}
