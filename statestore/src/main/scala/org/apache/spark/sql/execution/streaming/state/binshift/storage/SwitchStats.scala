package org.apache.spark.sql.execution.streaming.state.binshift.storage

/**
 * What one load moved.
 *
 * @param binsPrepared       of the adopted bins, those that were copied before the switch
 * @param binsShipped        those that were sent by their old owner's executor at the switch
 * @param binsFromCheckpoint those that were read from their old owner's checkpoint at the switch
 * @param binsRecopied       of the prepared and shipped bins, those whose shipment was damaged or did not come,
 *                           so that the copy was made from the checkpoint
 * @param rowsFetched        rows that were looked up at their old owner before their bin came, whether there were such rows or not
 * @param bytesAdopted       bytes of keys and values, or of the files that were taken in
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
