package org.apache.spark.sql.binshift.statistics

import java.io.{ByteArrayInputStream, ByteArrayOutputStream, DataInputStream, DataOutputStream}
import java.util.Base64

import org.apache.hadoop.io.WritableUtils.{readVLong, writeVLong}

import org.apache.spark.sql.execution.streaming.state.binshift.checkpoint.ControlDir
import org.apache.spark.sql.execution.streaming.state.binshift.keys.BinKeyCodec
import org.json4s.{DefaultFormats, Formats}
import org.json4s.JsonDSL._

/**
 * The contents of a query's bins after an epoch, as saved in `statistics.json`. No result depends on it. A query that starts with an
 * old file divides the contents of its stores among the bins in the same proportions as then; without a file, it does so evenly.
 */
private[binshift] final case class SavedStatistics(epoch: Long, bins: Int, stores: Seq[SavedStore]) {
  def write(dir: ControlDir): Unit = dir.write(SavedStatistics.File,
    ("format" -> SavedStatistics.FormatVersion) ~ ("epoch" -> epoch) ~ ("bins" -> bins) ~
      ("stores" -> stores.map { s =>
        ("operator" -> s.operator) ~ ("store" -> s.store) ~ ("data" -> SavedStatistics.encode(s))
      }))
}

/** @param rows rows of all families, for each bin */
private[binshift] final case class SavedStore(
    operator: Long, store: String, keys: Array[Long], bytes: Array[Long], rows: Array[Long])

private[binshift] object SavedStatistics {
  private val File = "statistics.json"
  private val FormatVersion = 1

  def read(dir: ControlDir): Option[SavedStatistics] = dir.decoded(File) { json =>
    implicit val formats: Formats = DefaultFormats
    Option.when((json \ "format").extract[Int] == FormatVersion) {
      val bins = (json \ "bins").extract[Int]
      require(bins >= 1 && bins <= BinKeyCodec.MaxBins, s"it has $bins bins")
      SavedStatistics((json \ "epoch").extract[Long], bins,
        (json \ "stores").children.map { s =>
          decode(
            (s \ "operator").extract[Long], (s \ "store").extract[String], (s \ "data").extract[String], bins)
        })
    }
  }.flatten

  /** Keys, bytes and rows of one bin after the other, as numbers of varying length. */
  private def encode(s: SavedStore): String = {
    val bytes = new ByteArrayOutputStream()
    val out = new DataOutputStream(bytes)
    s.rows.indices.foreach(bin => Seq(s.keys, s.bytes, s.rows).foreach(of => writeVLong(out, of(bin))))
    Base64.getEncoder.encodeToString(bytes.toByteArray)
  }

  private def decode(operator: Long, store: String, data: String, bins: Int): SavedStore = {
    val in = new DataInputStream(new ByteArrayInputStream(Base64.getDecoder.decode(data)))
    val saved = SavedStore(operator, store, new Array(bins), new Array(bins), new Array(bins))
    saved.rows.indices.foreach { bin =>
      Seq(saved.keys, saved.bytes, saved.rows).foreach(of => of(bin) = readVLong(in))
    }
    saved
  }
}
