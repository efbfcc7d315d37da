package org.apache.spark.sql.execution.streaming.state.binshift.storage

import org.apache.spark.sql.execution.streaming.state.{ArrayIndexRange, ByteArrayPair, RocksDB}
import org.apache.spark.util.NextIterator

/** The operations on rows of `RocksDB` since Spark 4.2, whose rows may have checksums, with keys in their stored form. */
private[binshift] trait RowOperations extends RocksDB with StoredKeys {

  /** Puts a value as it is stored, with its checksum. */
  def putStored(key: Array[Byte], value: Array[Byte], family: String): Unit =
    put(key, value, family, includesPrefix = false, deriveCfName = false, includesChecksum = RowForm.hasChecksums(conf))

  /** Merges a value as it is stored, with its checksum. */
  def mergeStored(key: Array[Byte], value: Array[Byte], family: String): Unit =
    merge(key, value, family, includesPrefix = false, deriveCfName = false, includesChecksum = RowForm.hasChecksums(conf))

  override def keyExists(key: Array[Byte], cfName: String): Boolean =
    super.keyExists(stored(key, cfName), cfName)

  override def getMergedValues(key: Array[Byte], cfName: String): Iterator[ArrayIndexRange[Byte]] =
    super.getMergedValues(stored(key, cfName), cfName)

  /** `BinnedStateStore` looks keys up one by one, since each has a bin of its own. */
  override def multiGet(keys: Array[Array[Byte]], cfName: String): Iterator[Array[Byte]] =
    unsupported("multiGet")

  override def put(
      key: Array[Byte], value: Array[Byte], cfName: String, includesPrefix: Boolean,
      deriveCfName: Boolean, includesChecksum: Boolean): Unit =
    writing(key, cfName, key.length + value.length)(
      super.put(_, value, cfName, includesPrefix, deriveCfName, includesChecksum))

  override def putList(
      key: Array[Byte], values: List[Array[Byte]], cfName: String, includesPrefix: Boolean,
      includesChecksum: Boolean, deriveCfName: Boolean): Unit =
    writing(key, cfName, key.length + lengthOf(values))(
      super.putList(_, values, cfName, includesPrefix, includesChecksum, deriveCfName))

  override def merge(
      key: Array[Byte], value: Array[Byte], cfName: String, includesPrefix: Boolean,
      deriveCfName: Boolean, includesChecksum: Boolean): Unit =
    writing(key, cfName, key.length + value.length, appended = value.length)(
      super.merge(_, value, cfName, includesPrefix, deriveCfName, includesChecksum))

  override def mergeList(
      key: Array[Byte], values: List[Array[Byte]], cfName: String, includesPrefix: Boolean,
      includesChecksum: Boolean, deriveCfName: Boolean): Unit = {
    val appended = lengthOf(values)
    writing(key, cfName, key.length + appended, appended)(
      super.mergeList(_, values, cfName, includesPrefix, includesChecksum, deriveCfName))
  }

  override def remove(
      key: Array[Byte], cfName: String, includesPrefix: Boolean, deriveCfName: Boolean,
      includesChecksum: Boolean): Unit =
    writing(key, cfName, 0)(super.remove(_, cfName, includesPrefix, deriveCfName, includesChecksum))

  /** Only useful within one bin, and no operator calls it. */
  override def deleteRange(
      beginKey: Array[Byte], endKey: Array[Byte], cfName: String, includesPrefix: Boolean,
      includesChecksum: Boolean): Unit = unsupported("deleteRange")

  override def rangeScan(
      startKey: Option[Array[Byte]], endKey: Option[Array[Byte]], cfName: String): NextIterator[ByteArrayPair] =
    scanned(startKey, endKey, cfName)(super.rangeScan(_, _, cfName))
}
