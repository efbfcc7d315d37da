package org.apache.spark.sql.execution.streaming.state.binshift.provider

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.state.StateStore

/** The operations of a store that Spark 4.1 has not, so none. */
private[binshift] trait ReadOperations extends StateStore {
  protected def enterKey(key: UnsafeRow, family: String): Unit
  protected def enterBin(key: UnsafeRow, family: String): Unit
  protected def enterAll(): Unit
}
