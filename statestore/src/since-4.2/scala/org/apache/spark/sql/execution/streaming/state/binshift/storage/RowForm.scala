package org.apache.spark.sql.execution.streaming.state.binshift.storage

import org.apache.spark.sql.execution.streaming.state.{ArrayIndexRange, KeyValueChecksumEncoder, RecordType, RocksDB, RocksDBConf}

/** How rows are stored since Spark 4.2: maybe with checksums, and values of one key joined with a delimiter or without. */
private[binshift] object RowForm {
  def hasChecksums(conf: RocksDBConf): Boolean = conf.rowChecksumEnabled

  /** The delimiter between values of one key. */
  def delimiter(conf: RocksDBConf): String = if (conf.mergeOperatorVersion == 1) "," else ""

  /** The key of a changelog's record. A record without a value has its checksum before the key. */
  def keyOf(kind: RecordType.Value, logged: Array[Byte], conf: RocksDBConf): Array[Byte] =
    if (kind == RecordType.DELETE_RECORD && hasChecksums(conf)) KeyValueChecksumEncoder.decodeKeyRowWithChecksum(logged)._1
    else logged

  /** The values of a row of `db`, in the form in which they can be put again: one by one if they carry checksums. */
  def valuesOf(db: RocksDB, family: String, key: Array[Byte], value: Array[Byte]): List[Array[Byte]] =
    if (hasChecksums(db.conf)) db.getMergedValues(key, family).map(copied).toList else List(value)

  /** The values of a changelog's record, in the same way. */
  def valuesIn(db: RocksDB, key: Array[Byte], value: Array[Byte]): List[Array[Byte]] =
    if (hasChecksums(db.conf)) {
      KeyValueChecksumEncoder.decodeAndVerifyMultiValueRowWithChecksum(None, key, value, db.delimiterSize).map(copied).toList
    } else {
      List(value)
    }

  private def copied(v: ArrayIndexRange[Byte]): Array[Byte] = java.util.Arrays.copyOfRange(v.array, v.fromIndex, v.untilIndex)
}
