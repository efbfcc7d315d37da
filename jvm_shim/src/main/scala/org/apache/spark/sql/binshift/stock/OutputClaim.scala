package org.apache.spark.sql.binshift.stock

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path
import org.json4s.{JObject, JString}
import org.json4s.JsonDSL._

import org.apache.spark.sql.execution.streaming.state.binshift.BinshiftException
import org.apache.spark.sql.execution.streaming.state.binshift.checkpoint.ControlDir

/**
 * Which conversion may write an output: the one whose id is in the marker, which the last to begin has put there.
 *
 * File systems have no locks in common. So whoever is about to write what counts looks before. It travels with the tasks.
 *
 * @param id of one attempt to convert
 */
private[binshift] final case class OutputClaim(output: String, id: String) {

  /** Puts the marker there, in place of another one. */
  def take(facts: JObject, hadoopConf: Configuration): Unit =
    dir(hadoopConf).write(OutputClaim.Marker, facts ~ ("id" -> id))

  /** Fails if another conversion has begun with the same output. */
  def require(hadoopConf: Configuration): Unit = if (!isMine(hadoopConf).contains(true)) throw taken

  /** The same once the output is complete: another one that finds it so takes its marker away. */
  def requireNoOther(hadoopConf: Configuration): Unit = if (isMine(hadoopConf).contains(false)) throw taken

  def end(hadoopConf: Configuration): Unit = dir(hadoopConf).delete(OutputClaim.Marker)

  def taken: BinshiftException = BinshiftException("OUTPUT_TAKEN", "output" -> output).configuration(
    s"another conversion began to write $output after this one; leave the output to it, or convert into another directory")

  /** Whether the marker has this id, if there is a marker. */
  private def isMine(hadoopConf: Configuration): Option[Boolean] =
    dir(hadoopConf).read(OutputClaim.Marker).map(_ \ "id" == JString(id))

  private def dir(hadoopConf: Configuration): ControlDir = new ControlDir(new Path(output), hadoopConf)
}

private[binshift] object OutputClaim {
  private[stock] val Marker = "binshift-conversion.json"

  /** Whether a conversion has begun, and not ended. */
  def isThere(output: Path, hadoopConf: Configuration): Boolean = new ControlDir(output, hadoopConf).exists(Marker)
}
