package org.apache.spark.sql.execution.streaming.state.binshift.shipping

import org.apache.spark.sql.execution.streaming.state.RocksDB
import org.apache.spark.sql.execution.streaming.state.binshift.statistics.RowsByBin

/** The store for which shipping sends and stages bins. Used by the store's task. */
private[binshift] trait ShippingStore extends RocksDB {
  /** How often `bin` was looked up or written at the loaded version. */
  def touches(bin: Int): Long

  /** How many rows each bin has, after looking up those that a replay left. */
  def rowsOfBins: RowsByBin

  /** Waits until all bins that the partition owns are here. */
  def requireAllBins(): Unit
}
