package org.apache.spark.sql.execution.streaming.state.binshift.provider

import org.apache.spark.sql.execution.streaming.state.{StateStoreCustomMetric, StateStoreCustomSizeMetric, StateStoreCustomSumMetric, StateStoreCustomTimingMetric}

/**
 * The metrics that the provider adds to the progress of each stateful operator, summed over its
 * partitions. Their names are public: users read them from `StreamingQueryProgress`.
 */
private[sql] object BinMetrics {
  /** The driver takes the next step when the sum is 0. */
  val AwaitedName = "binshiftBinsAwaited"
  val GivenUpName = "binshiftBinsGivenUp"
  val AdoptedName = "binshiftBinsAdopted"
  val BytesAdoptedName = "binshiftBytesAdopted"
  /** The driver waits for copies as long as this sum changes. */
  val BytesCopiedName = "binshiftBytesCopied"

  private val Owned = StateStoreCustomSumMetric("binshiftBinsOwned", "binshift: bins owned")
  private val Adopted = StateStoreCustomSumMetric(AdoptedName, "binshift: bins adopted")
  private val Prepared = StateStoreCustomSumMetric("binshiftBinsPrepared", "binshift: bins copied before their switch")
  private val Shipped = StateStoreCustomSumMetric("binshiftBinsShipped", "binshift: bins sent at their switch")
  private val FromCheckpoint =
    StateStoreCustomSumMetric("binshiftBinsFromCheckpoint", "binshift: bins read from the checkpoint at their switch")
  private val Recopied = StateStoreCustomSumMetric(
    "binshiftBinsRecopied", "binshift: bins copied from the checkpoint, since their shipment failed")
  private val Awaited = StateStoreCustomSumMetric(AwaitedName, "binshift: bins of the next step not copied yet")
  private val GivenUp = StateStoreCustomSumMetric(
    GivenUpName, "binshift: bins of the next step that could not be copied and will be read from the checkpoint")
  private val Copied = StateStoreCustomSizeMetric(BytesCopiedName, "binshift: bytes copied so far for later steps")
  private val Warm =
    StateStoreCustomSumMetric("binshiftFilesWarm", "binshift: files of moved partitions that their executor had already")
  private val Fetched =
    StateStoreCustomSumMetric("binshiftFilesFetched", "binshift: files of moved partitions fetched from the checkpoint")
  private val Released = StateStoreCustomSumMetric("binshiftBinsReleased", "binshift: bins released")
  private val RowsFetched = StateStoreCustomSumMetric(
    "binshiftRowsFetched", "binshift: rows looked up at their old owner before their bin came")
  private val Rows = StateStoreCustomSumMetric("binshiftRowsAdopted", "binshift: rows adopted")
  private val Bytes = StateStoreCustomSizeMetric(BytesAdoptedName, "binshift: bytes adopted")
  private val Millis = StateStoreCustomTimingMetric("binshiftAdoptMs", "binshift: time to adopt")

  private[binshift] val All: Seq[StateStoreCustomMetric] =
    Seq(Owned, Adopted, Prepared, Shipped, FromCheckpoint, Recopied, Awaited, GivenUp, Copied, Warm, Fetched, Released,
      RowsFetched,
      Rows, Bytes, Millis)

  /**
   * @param counts a store of the same task whose metrics Spark drops. Metrics for which the driver waits cover both stores; the others
   *               cover only `db`.
   */
  private[binshift] def of(db: BinnedRocksDB, counts: Option[BinnedRocksDB]): Map[StateStoreCustomMetric, Long] = {
    val s = db.lastSwitch
    val both = Seq(db) ++ counts
    Map(Owned -> db.binsOwned, Adopted -> s.binsAdopted, Prepared -> s.binsPrepared,
      Shipped -> s.binsShipped, FromCheckpoint -> s.binsFromCheckpoint, Recopied -> s.binsRecopied,
      Awaited -> both.map(_.binsAwaited.toLong).sum, GivenUp -> both.map(_.binsGivenUp.toLong).sum,
      Copied -> both.map(_.bytesCopied).sum,
      Warm -> db.loadedFiles.here, Fetched -> db.loadedFiles.fetched,
      Released -> s.binsReleased,
      RowsFetched -> s.rowsFetched, Rows -> s.rowsAdopted, Bytes -> s.bytesAdopted, Millis -> s.adoptMs)
  }
}
