package org.apache.spark.sql.execution.streaming.state.binshift.checkpoint

import scala.util.Try

import org.apache.spark.sql.execution.streaming.state.binshift.BinshiftConf

/**
 * An entry as others refer to it: one of the same epoch with another table has another name.
 *
 * Spark logs the name of the entry in force with the offsets of each epoch but the first one of a run. So a routing
 * log that is older than the log of offsets is noticed, and so is an entry that is lost or was written by somebody else.
 */
private[sql] final case class EntryName(epoch: Long, checksum: Long) {
  def render: String = f"$epoch:$checksum%08x"
}

private[sql] object EntryName {
  /** The setting under which Spark logs it. */
  val Key: String = BinshiftConf.Prefix + "routingEntry"

  def parse(text: String): Option[EntryName] = text.split(':') match {
    case Array(epoch, checksum) => Try(EntryName(epoch.toLong, java.lang.Long.parseLong(checksum, 16))).toOption
    case _ => None
  }
}
