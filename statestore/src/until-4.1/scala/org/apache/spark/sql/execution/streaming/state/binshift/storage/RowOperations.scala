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
      key: Array[Byte], value: Array[Byte], cfName: String, includesPrefix: Boolean, deriveCfName: Boolean): Unit = {
    val form = formOf(cfName)
    val k = storedAsOwner(key, form)
    val before = rowsOf(form)
    super.put(k, value, cfName, includesPrefix, deriveCfName)
    wrote(form, before, key.length + value.length, 0)
  }

  override def putList(
      key: Array[Byte], values: List[Array[Byte]], cfName: String, includesPrefix: Boolean, deriveCfName: Boolean): Unit = {
    val form = formOf(cfName)
    val k = storedAsOwner(key, form)
    val before = rowsOf(form)
    super.putList(k, values, cfName, includesPrefix, deriveCfName)
    wrote(form, before, key.length + values.map(_.length).sum, 0)
  }

  override def merge(
      key: Array[Byte], value: Array[Byte], cfName: String, includesPrefix: Boolean, deriveCfName: Boolean): Unit = {
    val form = formOf(cfName)
    val k = storedAsOwner(key, form)
    val before = rowsOf(form)
    super.merge(k, value, cfName, includesPrefix, deriveCfName)
    wrote(form, before, key.length + value.length, value.length)
  }

  override def mergeList(
      key: Array[Byte], values: List[Array[Byte]], cfName: String, includesPrefix: Boolean, deriveCfName: Boolean): Unit = {
    val form = formOf(cfName)
    val k = storedAsOwner(key, form)
    val before = rowsOf(form)
    super.mergeList(k, values, cfName, includesPrefix, deriveCfName)
    val appended = values.map(_.length).sum
    wrote(form, before, key.length + appended, appended)
  }

  override def remove(key: Array[Byte], cfName: String, includesPrefix: Boolean, deriveCfName: Boolean): Unit = {
    val form = formOf(cfName)
    val k = storedAsOwner(key, form)
    val before = rowsOf(form)
    super.remove(k, cfName, includesPrefix, deriveCfName)
    wrote(form, before, 0, 0)
  }
}
