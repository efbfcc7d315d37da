package org.apache.spark.sql.binshift.statistics

import java.nio.charset.StandardCharsets.UTF_8
import java.nio.{ByteBuffer, ByteOrder}

import org.json4s.{JLong, JNull, JValue}
import org.json4s.JsonDSL._
import org.json4s.jackson.JsonMethods.{compact, render}

import org.apache.spark.sql.execution.streaming.state.binshift.routing.RoutingTable

/** The statistics of a query as of a committed epoch, in the forms in which they leave the driver. */
private[binshift] final case class StatisticsSnapshot(
    epoch: Long, table: RoutingTable, operators: Seq[OperatorSnapshot]) {

  /**
   * Encodes the statistics for Python, in little-endian order: the length of a JSON header (4 bytes), the header, the owner of each
   * bin (4 bytes each), and for each operator its keys, bytes, reads and writes (8 bytes each).
   */
  def toBytes: Array[Byte] = {
    val header = compact(jsonHeader).getBytes(UTF_8)
    val out = ByteBuffer.allocate(4 + header.length + 4 * table.bins + operators.size * 4 * 8 * table.bins)
      .order(ByteOrder.LITTLE_ENDIAN)
    out.putInt(header.length).put(header)
    out.asIntBuffer().put(table.owners)
    out.position(out.position() + 4 * table.bins)
    operators.foreach { o =>
      Seq(o.keys, o.bytes, o.reads, o.writes).foreach { column =>
        out.asLongBuffer().put(column)
        out.position(out.position() + 8 * table.bins)
      }
    }
    out.array()
  }

  /** Encodes the statistics for other processes, as the columns of the table by name. */
  def toColumns: JValue = {
    def perBin[T](of: OperatorSnapshot => Int => T): Seq[T] =
      operators.flatMap(o => (0 until table.bins).map(of(o)))
    def sized(of: OperatorSnapshot => Array[Long]): Seq[Option[Long]] =
      perBin(o => b => Option.when(o.isSized)(of(o)(b)))
    ("operator" -> perBin(o => _ => o.id)) ~ ("name" -> perBin(o => _ => o.name)) ~
      ("bin" -> perBin(_ => b => b)) ~ ("partition" -> perBin(_ => b => table.owner(b))) ~
      ("executor" -> perBin(o => b => o.executors(table.owner(b)))) ~
      ("standby" -> perBin(o => b => o.standby(table.owner(b)).map(_._1))) ~
      ("standby_lag" -> perBin(o => b => o.standby(table.owner(b)).flatMap(_._2))) ~
      ("keys" -> sized(_.keys)) ~ ("bytes" -> sized(_.bytes)) ~
      ("reads" -> perBin(o => b => o.reads(b))) ~ ("writes" -> perBin(o => b => o.writes(b)))
  }

  private def jsonHeader: JValue = render(
    ("epoch" -> epoch) ~ ("bins" -> table.bins) ~ ("operators" -> operators.map { o =>
      ("id" -> o.id) ~ ("name" -> o.name) ~ ("sized" -> o.isSized) ~
        ("executors" -> o.executors.map(e => e.orNull)) ~
        ("standbys" -> o.executors.indices.map(p => o.standby(p).map(_._1).orNull)) ~
        ("standby_lags" -> o.executors.indices.map(p => o.standby(p).flatMap(_._2).map(JLong(_)).getOrElse(JNull)))
    }))
}
