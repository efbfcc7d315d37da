package org.apache.spark.sql.execution.streaming.state.binshift.checkpoint

import java.io.FileNotFoundException
import java.nio.charset.StandardCharsets

import org.apache.hadoop.fs.Path
import org.json4s.{JInt, JObject, JString, JValue}
import org.json4s.jackson.JsonMethods

/**
 * The settings and the time that Spark logged with an epoch. For processes that don't have the log open.
 *
 * @param conf the settings
 * @param atMs when the epoch was logged
 */
private[sql] final case class LoggedConf(conf: Map[String, String], atMs: Option[Long])

private[sql] object LoggedConf {

  /**
   * Reads what was logged with `epoch`; `None` if the epoch isn't in the log of offsets.
   *
   * Relies on Spark: the log has a file per batch, the first line of which is its format and the second a JSON object with
   * the settings and the time.
   */
  def read(dir: ControlDir, epoch: Long): Option[LoggedConf] =
    try {
      val file = new Path(new Path(dir.path.getParent, "offsets"), epoch.toString)
      val in = file.getFileSystem(dir.hadoopConf).open(file)
      val lines =
        try new String(in.readAllBytes(), StandardCharsets.UTF_8).linesIterator.toSeq
        finally in.close()
      lines.lift(1).map(line => ControlDir.understood[JValue](file)(JsonMethods.parse(line))).map { json =>
        val conf = json \ "conf" match {
          case JObject(fields) => fields.collect { case (key, JString(value)) => key -> value }.toMap
          case _ => Map.empty[String, String]
        }
        LoggedConf(conf, Option(json \ "batchTimestampMs").collect { case JInt(ms) => ms.toLong })
      }
    } catch {
      case _: FileNotFoundException => None
    }
}
