package org.apache.spark.sql.execution.streaming.state.binshift.provider

import java.util.concurrent.ConcurrentHashMap

import org.apache.hadoop.conf.Configuration

import org.apache.spark.io.CompressionCodec
import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager
import org.apache.spark.sql.execution.streaming.state._

/** Spark's reader of changelogs, with the parameters that it has in 4.1. */
private[binshift] object ChangeDataReader {
  /**
   * @param start     a version after `end` if nothing should be read: 4.1 reads directories of retired partitions, too
   * @param storeConf not used in this version
   */
  def of(storeId: StateStoreId, db: RocksDB, start: Long, end: Long, endId: Option[String], codec: CompressionCodec,
      encoders: ConcurrentHashMap[String, (RocksDBKeyStateEncoder, RocksDBValueStateEncoder, Short)],
      family: Option[String], storeConf: StateStoreConf, hadoopConf: Configuration): StateStoreChangeDataReader = {
    val location = storeId.storeCheckpointLocation()
    val files = CheckpointFileManager.create(location, hadoopConf)
    if (start <= end) new RocksDBStateStoreChangeDataReader(files, db, location, start, end, endId, codec, encoders, family)
    else {
      new RocksDBStateStoreChangeDataReader(files, db, location, end, end, None, codec, encoders, family) {
        override def getNext(): (RecordType.Value, UnsafeRow, UnsafeRow, Long) = {
          finished = true
          null
        }
      }
    }
  }
}
