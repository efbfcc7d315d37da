package org.apache.spark.sql.execution.streaming.state.binshift.storage

import org.apache.spark.sql.execution.streaming.state.{RecordType, RocksDB, RocksDBConf}

/** How rows are stored in Spark 4.1: without checksums, and values of one key joined with a comma. */
private[binshift] object RowForm {
  def hasChecksums(conf: RocksDBConf): Boolean = false

  /** The delimiter between values of one key. */
  def delimiter(conf: RocksDBConf): String = ","

  /** The key of a changelog's record. */
  def keyOf(kind: RecordType.Value, logged: Array[Byte], conf: RocksDBConf): Array[Byte] = logged

  /** The values of a row of `db`, as putting them again wants them: joined. */
  def valuesOf(db: RocksDB, family: String, key: Array[Byte], value: Array[Byte]): List[Array[Byte]] = List(value)

  /** The values of a changelog's record, in the same way. */
  def valuesIn(db: RocksDB, key: Array[Byte], value: Array[Byte]): List[Array[Byte]] = List(value)
}
