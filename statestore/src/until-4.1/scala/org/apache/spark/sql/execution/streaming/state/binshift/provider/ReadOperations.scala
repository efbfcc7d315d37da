package org.apache.spark.sql.execution.streaming.state.binshift.provider

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.state.{StateStore, StateStoreIterator, UnsafeRowPair}

/** The operations of a store that Spark 4.1 has not, so none. */
private[binshift] trait ReadOperations extends StateStore {
  protected def enterKey(key: UnsafeRow, family: String): Unit
  protected def enterBin(key: UnsafeRow, family: String): Unit
  protected def enterAll(): Unit

  /** Called with the rows of a scan, which tell of their keys. */
  protected def scanned(rows: StateStoreIterator[UnsafeRowPair], family: String): StateStoreIterator[UnsafeRowPair]
}
