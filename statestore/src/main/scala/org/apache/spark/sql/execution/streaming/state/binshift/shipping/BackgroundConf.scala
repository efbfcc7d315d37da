package org.apache.spark.sql.execution.streaming.state.binshift.shipping

import java.util.Locale

import org.apache.spark.network.util.ByteUnit
import org.apache.spark.network.util.JavaUtils
import org.apache.spark.sql.execution.streaming.state.binshift.{BinshiftConf, BinshiftException}

/**
 * Bounds of what work in the background may use on one executor; see docs/settings.md.
 *
 * @param chunkBytes        size of a piece of a shipment before it is compressed, held in memory by sender and receiver
 * @param maxBytesPerSecond most that an executor sends, and receives, of copies; see [[CopyPace]]
 * @param maxBytesInFlight  what a store has sent and nobody has fetched yet; on disk
 * @param maxStagedBytes    rows of copies that wait on an executor for their switch; on disk
 * @param bytesToSplit      rows that move at once with which new partitions are opened before, to begin with whole files
 * @param timeoutMs         how long a task waits for bins before it reads the checkpoint
 * @param compactionPace    bytes per second that compactions read
 * @param auditedBins       bins of each step that are audited; none if 0
 * @param areAllCoresBusy   whether a core without a task is nothing to wait for, as in real-time mode
 */
private[sql] final case class BackgroundConf(
    chunkBytes: Int, maxBytesPerSecond: Long, maxBytesInFlight: Long, maxStagedBytes: Long, bytesToSplit: Long, timeoutMs: Long,
    compactionPace: Long, auditedBins: Int, areAllCoresBusy: Boolean) {

  /** The rate, in bytes per second, at which an executor is expected to send before tasks have shown a better one. */
  def expectedBytesPerSecond: Long = math.min(maxBytesPerSecond, CopyPace.FirstRate)
}

private[sql] object BackgroundConf {
  import BinshiftConf.Prefix

  /** A piece is an array, sent and received as a whole. */
  private val MaxChunkBytes = 64L << 20

  def apply(conf: Map[String, String]): BackgroundConf = {
    def bytes(name: String, default: String): Long =
      positive(Prefix + name, conf.getOrElse(Prefix + name, default))(JavaUtils.byteStringAs(_, ByteUnit.BYTE))
    BackgroundConf(
      chunkBytes = math.min(bytes("ship.chunkBytes", "256k"), MaxChunkBytes).toInt,
      maxBytesPerSecond = bytes("ship.maxBytesPerSecond", "64m"),
      maxBytesInFlight = bytes("ship.maxBytesInFlight", "256m"),
      maxStagedBytes = bytes("ship.maxStagedBytes", "64g"),
      bytesToSplit = bytes("ship.minBytesToSplit", "16m"),
      timeoutMs = positive(Prefix + "ship.timeout", conf.getOrElse(Prefix + "ship.timeout", "30s"))(JavaUtils.timeStringAsMs),
      compactionPace = bytes("compaction.bytesPerSecond", "3m"),
      auditedBins = auditedBins(conf.get(BinshiftConf.Audit)),
      areAllCoresBusy = conf.get(BinshiftConf.RealTimeRun).contains("true"))
  }

  private def auditedBins(text: Option[String]): Int = text.map(_.trim.toLowerCase(Locale.ROOT)) match {
    case None | Some("off") => 0
    case Some("all") => Int.MaxValue
    case Some(number) => number.toIntOption.filter(_ >= 0).getOrElse(
        throw BinshiftException("INVALID_VALUE", "name" -> BinshiftConf.Audit, "value" -> text.get).configuration(
          s"${BinshiftConf.Audit} is '${text.get}'; it must be a whole number of at least 0, or all, or off"))
  }

  /** @throws BinshiftException if the text of a setting is not a positive amount */
  private[shipping] def positive(key: String, text: String)(parse: String => Long): Long = {
    val value =
      try parse(text)
      catch { case _: NumberFormatException => 0L }
    if (value <= 0) {
      throw BinshiftException("INVALID_VALUE", "name" -> key, "value" -> text).configuration(
        s"$key is '$text'; it must be a positive amount with a unit, such as 64m or 30s")
    }
    value
  }
}
