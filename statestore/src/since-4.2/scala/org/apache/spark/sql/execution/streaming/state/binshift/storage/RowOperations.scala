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
      deriveCfName: Boolean, includesChecksum: Boolean): Unit = {
    val form = formOf(cfName)
    val k = storedAsOwner(key, form)
    val before = rowsOf(form)
    super.put(k, value, cfName, includesPrefix, deriveCfName, includesChecksum)
    wrote(form, before, key.length + value.length, 0)
  }

  override def putList(
      key: Array[Byte], values: List[Array[Byte]], cfName: String, includesPrefix: Boolean,
      includesChecksum: Boolean, deriveCfName: Boolean): Unit = {
    val form = formOf(cfName)
    val k = storedAsOwner(key, form)
    val before = rowsOf(form)
    super.putList(k, values, cfName, includesPrefix, includesChecksum, deriveCfName)
    wrote(form, before, key.length + values.map(_.length).sum, 0)
  }

  override def merge(
      key: Array[Byte], value: Array[Byte], cfName: String, includesPrefix: Boolean,
      deriveCfName: Boolean, includesChecksum: Boolean): Unit = {
    val form = formOf(cfName)
    val k = storedAsOwner(key, form)
    val before = rowsOf(form)
    super.merge(k, value, cfName, includesPrefix, deriveCfName, includesChecksum)
    wrote(form, before, key.length + value.length, value.length)
  }

  override def mergeList(
      key: Array[Byte], values: List[Array[Byte]], cfName: String, includesPrefix: Boolean,
      includesChecksum: Boolean, deriveCfName: Boolean): Unit = {
    val form = formOf(cfName)
    val k = storedAsOwner(key, form)
    val before = rowsOf(form)
    super.mergeList(k, values, cfName, includesPrefix, includesChecksum, deriveCfName)
    val appended = values.map(_.length).sum
    wrote(form, before, key.length + appended, appended)
  }

  override def remove(
      key: Array[Byte], cfName: String, includesPrefix: Boolean, deriveCfName: Boolean,
      includesChecksum: Boolean): Unit = {
    val form = formOf(cfName)
    val k = storedAsOwner(key, form)
    val before = rowsOf(form)
    super.remove(k, cfName, includesPrefix, deriveCfName, includesChecksum)
    wrote(form, before, 0, 0)
  }

  /** Of use only within one bin; no operator calls it. */
  override def deleteRange(
      beginKey: Array[Byte], endKey: Array[Byte], cfName: String, includesPrefix: Boolean,
      includesChecksum: Boolean): Unit = unsupported("deleteRange")

  override def rangeScan(
      startKey: Option[Array[Byte]], endKey: Option[Array[Byte]], cfName: String): NextIterator[ByteArrayPair] =
    scanned(startKey, endKey, cfName)(super.rangeScan(_, _, cfName))
}
