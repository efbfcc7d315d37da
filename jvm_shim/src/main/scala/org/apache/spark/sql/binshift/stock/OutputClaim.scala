package org.apache.spark.sql.binshift.stock

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path
import org.json4s.{JObject, JString}
import org.json4s.JsonDSL._

import org.apache.spark.sql.execution.streaming.state.binshift.BinshiftException
import org.apache.spark.sql.execution.streaming.state.binshift.checkpoint.ControlDir

/**
 * Says which conversion may write an output: the one whose id is in the marker. The last conversion to begin has put it there.
 *
 * File systems have no common kind of lock. So before a conversion writes anything that counts, it looks at the marker. Travels
 * with the tasks.
 *
 * @param id identifies one attempt to convert
 */
private[binshift] final case class OutputClaim(output: String, id: String) {

  /** Writes the marker, replacing another one. */
  def take(facts: JObject, hadoopConf: Configuration): Unit =
    dir(hadoopConf).write(OutputClaim.Marker, facts ~ ("id" -> id))

  /** Fails if another conversion has begun with the same output. */
  def require(hadoopConf: Configuration): Unit = if (!isMine(hadoopConf).contains(true)) throw taken

  /** The same check once the output is complete. No marker is fine then: a conversion that finds the output complete removes its own. */
  def requireNoOther(hadoopConf: Configuration): Unit = if (isMine(hadoopConf).contains(false)) throw taken

  def end(hadoopConf: Configuration): Unit = dir(hadoopConf).delete(OutputClaim.Marker)

  def taken: BinshiftException = BinshiftException("OUTPUT_TAKEN", "output" -> output).configuration(
    s"another conversion began to write $output after this one; leave the output to it, or convert into another directory")

  /** True if the marker has this id; `None` if there is no marker. */
  private def isMine(hadoopConf: Configuration): Option[Boolean] =
    dir(hadoopConf).read(OutputClaim.Marker).map(_ \ "id" == JString(id))

  private def dir(hadoopConf: Configuration): ControlDir = new ControlDir(new Path(output), hadoopConf)
}

private[binshift] object OutputClaim {
  private[stock] val Marker = "binshift-conversion.json"

  /** True if a conversion has begun and not ended. */
  def isThere(output: Path, hadoopConf: Configuration): Boolean = new ControlDir(output, hadoopConf).exists(Marker)
}
