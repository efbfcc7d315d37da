package org.apache.spark.sql.execution.streaming.state.binshift

import org.apache.spark.sql.execution.streaming.state.{StateStoreCustomMetric, StateStoreCustomSizeMetric, StateStoreCustomSumMetric, StateStoreCustomTimingMetric}

/**
 * The metrics that the provider adds to the progress of each stateful operator, summed over its
 * partitions. Their names are public: users read them from `StreamingQueryProgress`.
 */
private[binshift] object BinMetrics {
  private val Owned = StateStoreCustomSumMetric("binshiftBinsOwned", "binshift: bins owned")
  private val Adopted = StateStoreCustomSumMetric("binshiftBinsAdopted", "binshift: bins adopted")
  private val Released = StateStoreCustomSumMetric("binshiftBinsReleased", "binshift: bins released")
  private val Rows = StateStoreCustomSumMetric("binshiftRowsAdopted", "binshift: rows adopted")
  private val Bytes = StateStoreCustomSizeMetric("binshiftBytesAdopted", "binshift: bytes adopted")
  private val Millis = StateStoreCustomTimingMetric("binshiftAdoptMs", "binshift: time to adopt")

  val All: Seq[StateStoreCustomMetric] = Seq(Owned, Adopted, Released, Rows, Bytes, Millis)

  def of(db: BinnedRocksDB): Map[StateStoreCustomMetric, Long] = {
    val s = db.lastSwitch
    Map(Owned -> db.binsOwned, Adopted -> s.binsAdopted, Released -> s.binsReleased,
      Rows -> s.rowsAdopted, Bytes -> s.bytesAdopted, Millis -> s.adoptMs)
  }
}
