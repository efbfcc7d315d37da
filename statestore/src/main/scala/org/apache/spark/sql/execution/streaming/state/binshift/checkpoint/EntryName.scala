package org.apache.spark.sql.execution.streaming.state.binshift.checkpoint

import java.nio.charset.StandardCharsets.UTF_8
import java.util.zip.CRC32

import scala.util.Try

import org.apache.spark.sql.execution.streaming.state.binshift.BinshiftConf

/**
 * The name by which a routing entry is referred to: its epoch, and a checksum of its content.
 *
 * An entry is never changed, and says which run made it. So a name stands for one decision of one run, and an entry that another
 * driver writes for the same epoch has another name. Spark logs the name of the entry in force with the offsets of each epoch, except
 * for the first epoch of a run, for which the run's claim has the name ([[RunHistory]]).
 *
 * @param checksum CRC-32 of the file's text. For an entry of an older version, whose file name has no checksum, it is that of its
 *                 table, or [[EntryName.Unknown]] if only the epoch of such an entry is known.
 */
private[sql] final case class EntryName(epoch: Long, checksum: Long) {
  def render: String = f"$epoch:$checksum%08x"

  /** The name of its file in the directory of entries. */
  def file: String = if (checksum == EntryName.Unknown) epoch.toString else f"$epoch-$checksum%08x"
}

private[sql] object EntryName {
  /** The setting under which Spark logs it. */
  val Key: String = BinshiftConf.Prefix + "routingEntry"
  val Unknown: Long = -1

  private val File = raw"(\d+)(?:-([0-9a-f]{8}))?".r

  def of(epoch: Long, text: String): EntryName = {
    val crc = new CRC32
    crc.update(text.getBytes(UTF_8))
    EntryName(epoch, crc.getValue)
  }

  def parse(text: String): Option[EntryName] = text.split(':') match {
    case Array(epoch, checksum) => Try(EntryName(epoch.toLong, java.lang.Long.parseLong(checksum, 16))).toOption
    case _ => None
  }

  /** The name of the entry in a file called `name`; `None` if it isn't the file of an entry. */
  def ofFile(name: String): Option[EntryName] = name match {
    case File(epoch, checksum) => epoch.toLongOption.map(
        EntryName(_, Option(checksum).fold(Unknown)(java.lang.Long.parseLong(_, 16))))
    case _ => None
  }
}
