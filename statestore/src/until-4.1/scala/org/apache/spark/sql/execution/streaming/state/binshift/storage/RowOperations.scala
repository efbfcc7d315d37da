package org.apache.spark.sql.execution.streaming.state.binshift.storage

import org.apache.spark.sql.execution.streaming.state.RocksDB

/** The operations on rows of the `RocksDB` of Spark 4.1, which knows no checksums of rows, with keys in their stored form. */
private[binshift] trait RowOperations extends RocksDB with StoredKeys {

  /** Puts a value as it is stored. */
  def putStored(key: Array[Byte], value: Array[Byte], family: String): Unit =
    put(key, value, family, includesPrefix = false, deriveCfName = false)

  /** Merges a value as it is stored. */
  def mergeStored(key: Array[Byte], value: Array[Byte], family: String): Unit =
    merge(key, value, family, includesPrefix = false, deriveCfName = false)

  override def put(
      key: Array[Byte], value: Array[Byte], cfName: String, includesPrefix: Boolean, deriveCfName: Boolean): Unit =
    writing(key, cfName, key.length + value.length)(super.put(_, value, cfName, includesPrefix, deriveCfName))

  override def putList(
      key: Array[Byte], values: List[Array[Byte]], cfName: String, includesPrefix: Boolean, deriveCfName: Boolean): Unit =
    writing(key, cfName, key.length + lengthOf(values))(
      super.putList(_, values, cfName, includesPrefix, deriveCfName))

  override def merge(
      key: Array[Byte], value: Array[Byte], cfName: String, includesPrefix: Boolean, deriveCfName: Boolean): Unit =
    writing(key, cfName, key.length + value.length, appended = value.length)(
      super.merge(_, value, cfName, includesPrefix, deriveCfName))

  override def mergeList(
      key: Array[Byte], values: List[Array[Byte]], cfName: String, includesPrefix: Boolean, deriveCfName: Boolean): Unit = {
    val appended = lengthOf(values)
    writing(key, cfName, key.length + appended, appended)(
      super.mergeList(_, values, cfName, includesPrefix, deriveCfName))
  }

  override def remove(key: Array[Byte], cfName: String, includesPrefix: Boolean, deriveCfName: Boolean): Unit =
    writing(key, cfName, 0)(super.remove(_, cfName, includesPrefix, deriveCfName))
}
