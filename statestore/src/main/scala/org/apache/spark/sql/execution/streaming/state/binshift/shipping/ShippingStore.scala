package org.apache.spark.sql.execution.streaming.state.binshift.shipping

import org.apache.spark.sql.execution.streaming.state.RocksDB

/** The store for which shipping sends and stages bins. Used by the store's task. */
private[binshift] trait ShippingStore extends RocksDB {
  /** How often `bin` was looked up or written at the loaded version. */
  def touches(bin: Int): Long

  /** How many bins the partition owns at the loaded version. */
  def binsOwned: Int

  /** Waits until all bins that the partition owns are here. */
  def requireAllBins(): Unit
}
