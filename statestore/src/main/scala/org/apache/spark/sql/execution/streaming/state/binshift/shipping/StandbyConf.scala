package org.apache.spark.sql.execution.streaming.state.binshift.shipping

import org.apache.spark.network.util.{ByteUnit, JavaUtils}
import org.apache.spark.sql.execution.streaming.state.binshift.BinshiftConf

/**
 * The limits of standbys on one executor; see docs/settings.md.
 *
 * @param intervalMs        between two looks at the checkpoint
 * @param maxBytes          of all standbys of the executor, on disk
 * @param maxBytesPerSecond that are fetched, of files of snapshots
 * @param pieceBytes        that are held in memory of a file
 */
private[sql] final case class StandbyConf(intervalMs: Long, maxBytes: Long, maxBytesPerSecond: Long, pieceBytes: Int)

private[sql] object StandbyConf {
  def apply(conf: Map[String, String]): StandbyConf = {
    def value(key: String, default: String)(parse: String => Long): Long =
      BackgroundConf.positive(key, conf.getOrElse(key, default))(parse)
    val background = BackgroundConf(conf)
    StandbyConf(
      intervalMs = value(BinshiftConf.StandbysInterval, "5s")(JavaUtils.timeStringAsMs),
      maxBytes = value(BinshiftConf.StandbysMaxBytes, "64g")(JavaUtils.byteStringAs(_, ByteUnit.BYTE)),
      maxBytesPerSecond = background.maxBytesPerSecond,
      pieceBytes = background.chunkBytes)
  }
}
