package org.apache.spark.sql.execution.streaming.state.binshift

import java.util.concurrent.ConcurrentHashMap

import org.apache.hadoop.conf.Configuration

import org.apache.spark.{SparkConf, SparkEnv}
import org.apache.spark.io.CompressionCodec
import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.types.StructType

/**
 * The option `readChangeFeed` of the `statestore` data source, for a binned store.
 *
 * Spark's reader of changelogs decodes keys with the encoders it is given, so it is given one that
 * takes the bin off first. Rows that were adopted or released appear in the feed as puts and deletes.
 */
private[binshift] final class BinnedChangeFeed(
    storeId: StateStoreId,
    keySchema: StructType,
    valueSchema: StructType,
    spec: KeyStateEncoderSpec,
    storeConf: StateStoreConf,
    hadoopConf: Configuration,
    schemas: Option[StateSchemaProvider]) {

  def reader(db: RocksDB, startVersion: Long, endVersion: Long, endCheckpointId: Option[String])
      : StateStoreChangeDataReader = {
    val location = storeId.storeCheckpointLocation()
    val sparkConf = Option(SparkEnv.get).map(_.conf).getOrElse(new SparkConf)
    new RocksDBStateStoreChangeDataReader(
      storeId, CheckpointFileManager.create(location, hadoopConf), db, location, startVersion,
      endVersion, endCheckpointId, CompressionCodec.createCodec(sparkConf, storeConf.compressionCodec),
      encoders(db), storeConf, None)
  }

  private def encoders(db: RocksDB)
      : ConcurrentHashMap[String, (RocksDBKeyStateEncoder, RocksDBValueStateEncoder, Short)] = {
    val family = StateStore.DEFAULT_COL_FAMILY_NAME
    val rows = RocksDBStateStoreProvider.getDataEncoder(
      storeConf.stateStoreEncodingFormat,
      StateRowEncoderCacheKey(StateStoreProvider.getRunId(hadoopConf), storeId.operatorId,
        storeId.partitionId, storeId.storeName, family),
      spec, valueSchema, schemas, Some(family))
    val value = RocksDBStateEncoder.getValueEncoder(
      rows, valueSchema, useMultipleValuesPerKey = false, db.delimiterSize)
    val map =
      new ConcurrentHashMap[String, (RocksDBKeyStateEncoder, RocksDBValueStateEncoder, Short)]()
    map.put(family, (new BinStrippingKeyDecoder(rows, keySchema), value, 0.toShort))
    map
  }
}

/** Decodes stored keys. (Spark's trait of key encoders is sealed, hence the subclass.) */
private final class BinStrippingKeyDecoder(rows: RocksDBDataEncoder, keySchema: StructType)
  extends NoPrefixKeyStateEncoder(rows, keySchema, false) {
  override def decodeKey(keyBytes: Array[Byte]): UnsafeRow =
    super.decodeKey(BinKeyCodec.stripBin(keyBytes))
}
