package org.apache.spark.sql.execution.streaming.state.binshift.provider

import java.util.concurrent.ConcurrentHashMap

import org.apache.hadoop.conf.Configuration

import org.apache.spark.io.CompressionCodec
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager
import org.apache.spark.sql.execution.streaming.state._

/** Spark's reader of changelogs, with the parameters that it has since 4.2. */
private[binshift] object ChangeDataReader {
  def of(storeId: StateStoreId, db: RocksDB, start: Long, end: Long, endId: Option[String], codec: CompressionCodec,
      encoders: ConcurrentHashMap[String, (RocksDBKeyStateEncoder, RocksDBValueStateEncoder, Short)],
      family: Option[String], storeConf: StateStoreConf, hadoopConf: Configuration): StateStoreChangeDataReader = {
    val location = storeId.storeCheckpointLocation()
    new RocksDBStateStoreChangeDataReader(storeId, CheckpointFileManager.create(location, hadoopConf), db, location, start,
      end, endId, codec, encoders, storeConf, family)
  }
}
