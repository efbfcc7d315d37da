package org.apache.spark.sql.execution.streaming.state.binshift.storage

/**
 * The bins and rows that one load has moved.
 *
 * @param binsPrepared       adopted bins that were copied before the switch
 * @param binsShipped        adopted bins that their old owner's executor sent at the switch
 * @param binsFromCheckpoint adopted bins that were read from their old owner's checkpoint at the switch
 * @param binsRecopied       prepared and shipped bins whose shipment was damaged or didn't arrive, so that the copy was made from
 *                           the checkpoint
 * @param rowsFetched        rows that were looked up at their old owner before their bin came, including rows that don't exist
 * @param bytesAdopted       bytes of keys and values, or of the ingested files
 * @param isSplit            whether the store began with all files of an old owner
 */
private[binshift] final case class SwitchStats(
    binsPrepared: Int = 0, binsShipped: Int = 0, binsFromCheckpoint: Int = 0, binsRecopied: Int = 0,
    binsReleased: Int = 0, rowsFetched: Long = 0, rowsAdopted: Long = 0, bytesAdopted: Long = 0, adoptMs: Long = 0,
    isSplit: Boolean = false) {

  def binsAdopted: Int = binsPrepared + binsShipped + binsFromCheckpoint

  def +(o: SwitchStats): SwitchStats = SwitchStats(binsPrepared + o.binsPrepared,
    binsShipped + o.binsShipped, binsFromCheckpoint + o.binsFromCheckpoint, binsRecopied + o.binsRecopied,
    binsReleased + o.binsReleased, rowsFetched + o.rowsFetched, rowsAdopted + o.rowsAdopted, bytesAdopted + o.bytesAdopted,
    adoptMs + o.adoptMs, isSplit || o.isSplit)
}

private[binshift] object SwitchStats {
  val None: SwitchStats = SwitchStats()
}
