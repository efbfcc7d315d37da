package org.apache.spark.sql.execution.streaming.state.binshift.shipping

/**
 * How a store cuts what it sends into chunks, and when a receiver says what it has; both ends know the same.
 *
 * @param chunkBytes of a chunk, before it is compressed
 * @param toldBytes  after which a receiver says what it has: a share of what may be in flight
 */
private[shipping] final case class ShipmentPieces(chunkBytes: Int, toldBytes: Long)

private[shipping] object ShipmentPieces {
  /** A chunk has as much at least, unless the setting is less. */
  private val LeastBytes = 1L << 18

  /**
   * The sender has a buffer for each receiver, and they share what one would have. A chunk is of no more than goes in a second,
   * since a pace is kept by waiting between chunks.
   *
   * @param receivers how many partitions the store sends to
   */
  def apply(conf: BackgroundConf, receivers: Int): ShipmentPieces = {
    val bytes = math.min(conf.chunkBytes / receivers, conf.maxBytesPerSecond)
    ShipmentPieces(
      math.min(conf.chunkBytes, math.max(bytes, LeastBytes)).toInt, conf.maxBytesInFlight / (2L * receivers))
  }
}
