package org.apache.spark.sql.execution.streaming.state.binshift

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.types.StructType

/**
 * Spark's store for one version, with the bin of each key worked out on the way in.
 *
 * A wrapper, because `RocksDBStateStore` is created in a private method of Spark's provider, and this
 * is where a key is still a row: its bin costs one hash, whatever the encoding of keys.
 *
 * @param delegate the store of Spark; everything it checks and counts stays as it is
 * @param db       the database below `delegate`
 */
private[binshift] final class BinnedStateStore(
    val delegate: RocksDBStateStoreProvider#RocksDBStateStore,
    val provider: BinnedStateStoreProvider,
    db: BinnedRocksDB,
    binOf: KeyBins) extends StateStore {

  override def id: StateStoreId = delegate.id
  override def version: Long = delegate.version

  override def get(key: UnsafeRow, colFamilyName: String): UnsafeRow = {
    db.bin = binOf(key)
    delegate.get(key, colFamilyName)
  }

  override def keyExists(key: UnsafeRow, colFamilyName: String): Boolean = {
    db.bin = binOf(key)
    delegate.keyExists(key, colFamilyName)
  }

  /** One lookup after the other: each key has a bin of its own. */
  override def multiGet(keys: Array[UnsafeRow], colFamilyName: String): Iterator[UnsafeRow] =
    keys.iterator.map(get(_, colFamilyName))

  override def put(key: UnsafeRow, value: UnsafeRow, colFamilyName: String): Unit = {
    db.bin = binOf(key)
    delegate.put(key, value, colFamilyName)
  }

  override def remove(key: UnsafeRow, colFamilyName: String): Unit = {
    db.bin = binOf(key)
    delegate.remove(key, colFamilyName)
  }

  override def iterator(colFamilyName: String): StateStoreIterator[UnsafeRowPair] =
    delegate.iterator(colFamilyName)

  override def commit(): Long = delegate.commit()
  override def abort(): Unit = delegate.abort()
  override def release(): Unit = delegate.release()
  override def hasCommitted: Boolean = delegate.hasCommitted
  override def getStateStoreCheckpointInfo(): StateStoreCheckpointInfo =
    delegate.getStateStoreCheckpointInfo()
  override def allColumnFamilyNames: Set[String] = delegate.allColumnFamilyNames

  override def metrics: StateStoreMetrics = {
    val m = delegate.metrics
    m.copy(customMetrics = m.customMetrics ++ BinMetrics.of(db))
  }

  // Below: what no operator with binned storage calls. Spark's store rejects column families, merges
  // and scans for a store that was not made for them, and BinnedRocksDB rejects what would remain.
  override def valuesIterator(key: UnsafeRow, colFamilyName: String): Iterator[UnsafeRow] =
    delegate.valuesIterator(key, colFamilyName)
  override def prefixScan(
      prefixKey: UnsafeRow, colFamilyName: String): StateStoreIterator[UnsafeRowPair] =
    delegate.prefixScan(prefixKey, colFamilyName)
  override def prefixScanWithMultiValues(
      prefixKey: UnsafeRow, colFamilyName: String): StateStoreIterator[UnsafeRowPair] =
    delegate.prefixScanWithMultiValues(prefixKey, colFamilyName)
  override def rangeScan(
      startKey: Option[UnsafeRow], endKey: Option[UnsafeRow], colFamilyName: String)
      : StateStoreIterator[UnsafeRowPair] = delegate.rangeScan(startKey, endKey, colFamilyName)
  override def iteratorWithMultiValues(colFamilyName: String): StateStoreIterator[UnsafeRowPair] =
    delegate.iteratorWithMultiValues(colFamilyName)
  override def putList(key: UnsafeRow, values: Array[UnsafeRow], colFamilyName: String): Unit =
    delegate.putList(key, values, colFamilyName)
  override def merge(key: UnsafeRow, value: UnsafeRow, colFamilyName: String): Unit =
    delegate.merge(key, value, colFamilyName)
  override def mergeList(key: UnsafeRow, values: Array[UnsafeRow], colFamilyName: String): Unit =
    delegate.mergeList(key, values, colFamilyName)
  override def removeColFamilyIfExists(colFamilyName: String): Boolean =
    delegate.removeColFamilyIfExists(colFamilyName)
  override def createColFamilyIfAbsent(
      colFamilyName: String,
      keySchema: StructType,
      valueSchema: StructType,
      keyStateEncoderSpec: KeyStateEncoderSpec,
      useMultipleValuesPerKey: Boolean,
      isInternal: Boolean): Unit = delegate.createColFamilyIfAbsent(
    colFamilyName, keySchema, valueSchema, keyStateEncoderSpec, useMultipleValuesPerKey, isInternal)
}
