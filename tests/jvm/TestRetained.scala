package org.apache.spark.sql.execution.streaming.state.binshift

import org.apache.hadoop.conf.Configuration

import org.apache.spark.sql.execution.streaming.state.{RocksDBConf, StateStoreId}
import org.apache.spark.sql.execution.streaming.state.binshift.checkpoint.VersionFile
import org.apache.spark.sql.execution.streaming.state.binshift.recovery.RetainedVersions
import org.apache.spark.sql.execution.streaming.state.binshift.routing.EpochRouting

/** The versions that a store of operator 0 has to keep for others, without a query. */
object TestRetained {
  /** The oldest version of a partition that others still need, if `last` is the only version that is retained; -1 if there is none. */
  def oldest(stateRoot: String, partition: Int, last: Long, hasIds: Boolean): Long = of(stateRoot, partition, hasIds).oldest(last)

  /** The same, as an object that can be asked repeatedly. */
  def of(stateRoot: String, partition: Int, hasIds: Boolean): LastingRetained = {
    val conf = new Configuration
    val routing = EpochRouting.forReader(stateRoot, conf)
    val store = StateStoreId(stateRoot, 0, partition)
    new LastingRetained(
      RetainedVersions.of(store, routing, RocksDBConf(), conf, hasIds), routing, () => VersionFile.list(store, conf))
  }
}

final class LastingRetained(retained: RetainedVersions, routing: EpochRouting, listed: () => Seq[VersionFile]) {
  /** The number of partitions that a task of this epoch reads. */
  def partitionsAt(epoch: Long): Int = routing.partitionsOf(epoch + 1).get

  def oldest(last: Long): Long = retained.neededByOthers(listed(), last, last, _ => false).getOrElse(-1)
}
