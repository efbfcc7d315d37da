package org.apache.spark.sql.execution.streaming.state.binshift.provider

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.state.{StateStore, StateStoreIterator, UnsafeRowPair}

/** Empty: Spark 4.1 lacks the operations that later versions have here. */
private[binshift] trait ReadOperations extends StateStore {
  protected def enterKey(key: UnsafeRow, family: String): Unit
  protected def enterBin(key: UnsafeRow, family: String): Unit
  protected def enterAll(): Unit

  /** Called with the rows of a scan, to see their keys. */
  protected def scanned(rows: StateStoreIterator[UnsafeRowPair], family: String): StateStoreIterator[UnsafeRowPair]
}
