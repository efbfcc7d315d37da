package org.apache.spark.sql.binshift.routing

import org.apache.spark.SPARK_VERSION
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.streaming.operators.stateful.StateStoreWriter
import org.apache.spark.sql.execution.streaming.state.binshift.{BinshiftConf, BinshiftException}
import org.apache.spark.sql.execution.streaming.state.binshift.checkpoint.Layout

/**
 * The number of bins that a session asks for. If it asks for none, the checkpoint decides, or the default.
 *
 * @throws BinshiftException if the setting is no number in range
 */
private[binshift] final class BinsSetting(session: SparkSession) {
  private val requested = session.conf.getOption(BinshiftConf.Bins).map(parse)

  /** The layout of a checkpoint that starts with `n` partitions. */
  def layoutOf(operators: Seq[StateStoreWriter], n: Int): Layout = {
    val bins = requested.getOrElse(BinshiftConf.DefaultBins)
    Layout(Layout.roundedBins(bins, n), bins, SPARK_VERSION,
      operators.map(op => StatefulOperators.idOf(op) -> StatefulOperators.layoutOf(op)).toMap)
  }

  /** Refuses to continue with another number than the checkpoint was started with. */
  def requireThatOf(known: Layout): Unit =
    requested.filter(b => b != known.bins && b != known.requestedBins).foreach { b =>
      throw BinshiftException("BINS_ARE_FIXED", "bins" -> known.requestedBins).configuration(
        s"the checkpoint was started with ${known.requestedBins} bins (rounded up to ${known.bins}) " +
          s"and cannot go on with $b; leave out ${BinshiftConf.Bins} or start with a new checkpoint")
    }

  private def parse(text: String): Int =
    text.toIntOption.filter(b => b >= 1 && b <= BinsSetting.Max).getOrElse(
      throw BinshiftException("INVALID_VALUE", "name" -> BinshiftConf.Bins, "value" -> text).configuration(
        s"${BinshiftConf.Bins} is '$text'; it must be a whole number from 1 to ${BinsSetting.Max}"))
}

private object BinsSetting {
  val Max = 32768
}
