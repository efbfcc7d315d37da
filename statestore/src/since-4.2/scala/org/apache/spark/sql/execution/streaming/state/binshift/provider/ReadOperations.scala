package org.apache.spark.sql.execution.streaming.state.binshift.provider

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.state.{RocksDBStateStoreProvider, StateStore, StateStoreIterator, UnsafeRowPair}

/** The operations of a store that Spark has since 4.2: ranges, several values of a key, and whether a key is there. */
private[binshift] trait ReadOperations extends StateStore {
  def delegate: RocksDBStateStoreProvider#RocksDBStateStore

  /** Called before the row of a key is read or written. */
  protected def enterKey(key: UnsafeRow, family: String): Unit

  /** Called before several rows of a bin, or a row with several values, are read or written. */
  protected def enterBin(key: UnsafeRow, family: String): Unit

  /** Called before a range is read. */
  protected def enterRange(start: Option[UnsafeRow], end: Option[UnsafeRow], family: String): Unit

  /** Called before a whole family is read. */
  protected def enterAll(): Unit

  /** Called with the rows of a scan, to see their keys. */
  protected def scanned(rows: StateStoreIterator[UnsafeRowPair], family: String): StateStoreIterator[UnsafeRowPair]

  override def keyExists(key: UnsafeRow, colFamilyName: String): Boolean = {
    enterKey(key, colFamilyName)
    delegate.keyExists(key, colFamilyName)
  }

  /** Looks the keys up one after the other, because they may have different bins. */
  override def multiGet(keys: Array[UnsafeRow], colFamilyName: String): Iterator[UnsafeRow] =
    keys.iterator.map(get(_, colFamilyName))

  /** Rejected by the database: the keys of a range are spread over bins. */
  override def deleteRange(beginKey: UnsafeRow, endKey: UnsafeRow, colFamilyName: String): Unit =
    delegate.deleteRange(beginKey, endKey, colFamilyName)

  override def iteratorWithMultiValues(colFamilyName: String): StateStoreIterator[UnsafeRowPair] = {
    enterAll()
    scanned(delegate.iteratorWithMultiValues(colFamilyName), colFamilyName)
  }

  override def prefixScanWithMultiValues(
      prefixKey: UnsafeRow, colFamilyName: String): StateStoreIterator[UnsafeRowPair] = {
    enterBin(prefixKey, colFamilyName)
    delegate.prefixScanWithMultiValues(prefixKey, colFamilyName)
  }

  override def rangeScan(
      startKey: Option[UnsafeRow], endKey: Option[UnsafeRow], colFamilyName: String): StateStoreIterator[UnsafeRowPair] = {
    enterRange(startKey, endKey, colFamilyName)
    scanned(delegate.rangeScan(startKey, endKey, colFamilyName), colFamilyName)
  }

  override def rangeScanWithMultiValues(
      startKey: Option[UnsafeRow], endKey: Option[UnsafeRow], colFamilyName: String): StateStoreIterator[UnsafeRowPair] = {
    enterRange(startKey, endKey, colFamilyName)
    scanned(delegate.rangeScanWithMultiValues(startKey, endKey, colFamilyName), colFamilyName)
  }

  override def allColumnFamilyNames: Set[String] = delegate.allColumnFamilyNames
}
