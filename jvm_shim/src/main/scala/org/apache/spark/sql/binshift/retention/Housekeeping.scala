package org.apache.spark.sql.binshift.retention

import org.apache.hadoop.fs.Path

import org.apache.spark.sql.binshift.routing.{RoutingEntries, RunState, StatefulOperators}
import org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution
import org.apache.spark.sql.execution.streaming.state.{RocksDBConf, StateStoreConf}
import org.apache.spark.sql.execution.streaming.state.binshift.checkpoint.ControlDir
import org.apache.spark.sql.execution.streaming.state.binshift.routing.RoutingEntry

/** Has deleted what no epoch of a run needs any more, and has checked whether everything else is in the checkpoint. */
private[binshift] final class Housekeeping(
    query: MicroBatchExecution, run: RunState, dir: ControlDir, entries: RoutingEntries, entriesToRetain: Int) {
  import Housekeeping._

  private val conf = query.sparkSessionForStream.sessionState.conf
  private val stateRoot = new Path(query.resolvedCheckpointRoot, "state")

  val sources: SourceCheck = new SourceCheck(
    query, run, stateRoot.toString, dir.hadoopConf, RocksDBConf(StateStoreConf(conf)), conf.minBatchesToRetain)
  val retired: RetiredPartitions = new RetiredPartitions(
    stateRoot.toString, dir.hadoopConf, RocksDBConf(StateStoreConf(conf)), () => sources.lookAtAll())
  private val pruning = new RoutingPruning(stateRoot, dir.hadoopConf, entries, entriesToRetain)

  /** Called on the stream's thread with each epoch, whose table is that of `entry`. Only begins what takes time. */
  def enter(epoch: Long, entry: RoutingEntry): Unit = {
    val now = run.now
    val oldest = epoch - conf.minBatchesToRetain
    if (!now.isAgain) pruning.prune(entry, now.binned.map(StatefulOperators.idOf), oldest, conf.streamingMaintenanceInterval)
    if (now.tables.scheduled.isEmpty) retired.claim(now.partitions)
    if (!now.isAgain && epoch % EpochsBetweenCleaning == 0) {
      retired.clean(now.storeNames, oldest, epoch, now.hasIds)
      sources.keepWatch(now.partitions, conf.streamingMaintenanceInterval)
    }
  }
}

private object Housekeeping {
  private val EpochsBetweenCleaning = 20
}
