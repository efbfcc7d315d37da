package org.apache.spark.sql.execution.streaming.state.binshift

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path

import org.apache.spark.sql.execution.streaming.state.StateStoreId
import org.apache.spark.sql.execution.streaming.state.binshift.checkpoint.{CheckpointIds, ControlDir}

/** The ids of a version's files, without a query. */
object TestIds {
  def of(checkpoint: String, version: Long, operator: Long, partition: Int, store: String): String =
    CheckpointIds.read(ControlDir.of(new Path(checkpoint), new Configuration), version)
      .of(StateStoreId(s"$checkpoint/state", operator, partition, store))
}
