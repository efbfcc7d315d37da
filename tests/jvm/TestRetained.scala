package org.apache.spark.sql.execution.streaming.state.binshift

import org.apache.hadoop.conf.Configuration

import org.apache.spark.sql.execution.streaming.state.{RocksDBConf, StateStoreId}
import org.apache.spark.sql.execution.streaming.state.binshift.checkpoint.VersionFile
import org.apache.spark.sql.execution.streaming.state.binshift.recovery.RetainedVersions
import org.apache.spark.sql.execution.streaming.state.binshift.routing.EpochRouting

/** What a store of operator 0 is found to keep for others, without a query around it. */
object TestRetained {
  /** The oldest version up to `last` of a partition that others still need; -1 if there is none. */
  def oldest(stateRoot: String, partition: Int, last: Long): Long = of(stateRoot, partition).oldest(last)

  /** The same, by one that goes on to be asked. */
  def of(stateRoot: String, partition: Int): LastingRetained = {
    val conf = new Configuration
    val routing = EpochRouting.forReader(stateRoot, conf)
    val retained = new RetainedVersions(
      StateStoreId(stateRoot, 0, partition), routing, conf, VersionFile.opened(_, RocksDBConf(), conf))
    new LastingRetained(retained, routing)
  }
}

final class LastingRetained(retained: RetainedVersions, routing: EpochRouting) {
  /** As a task of that epoch asks. */
  def partitionsAt(epoch: Long): Int = routing.partitionsOf(epoch + 1).get

  def oldest(last: Long): Long = retained.oldest(last).getOrElse(-1)

  /** The version from whose files on they are kept. */
  def oldestFile(last: Long): Long = retained.oldestFile(last).getOrElse(-1)
}
