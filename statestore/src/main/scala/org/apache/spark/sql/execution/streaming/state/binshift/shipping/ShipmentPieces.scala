package org.apache.spark.sql.execution.streaming.state.binshift.shipping

/**
 * The sizes of a shipment's chunks, and how often a receiver reports its progress. Sender and receiver compute the same numbers.
 *
 * @param chunkBytes size of a chunk before compression
 * @param toldBytes  bytes after which a receiver reports: a share of the bytes that may be in flight
 */
private[shipping] final case class ShipmentPieces(chunkBytes: Int, toldBytes: Long)

private[shipping] object ShipmentPieces {
  /** The smallest size of a chunk, unless the setting is smaller. */
  private val LeastBytes = 1L << 18

  /**
   * Computes the sizes for a store. The sender has a buffer for each receiver, and together they have the size of one chunk. A
   * chunk is no larger than what may be sent in a second, because the sender keeps to the pace by waiting between chunks.
   *
   * @param receivers how many partitions the store sends to
   */
  def apply(conf: BackgroundConf, receivers: Int): ShipmentPieces = {
    val bytes = math.min(conf.chunkBytes / receivers, conf.maxBytesPerSecond)
    ShipmentPieces(
      math.min(conf.chunkBytes, math.max(bytes, LeastBytes)).toInt, conf.maxBytesInFlight / (2L * receivers))
  }
}
