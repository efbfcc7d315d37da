package org.apache.spark.sql.execution.streaming.state.binshift.storage

import java.io.File
import java.nio.file.Files

import org.json4s.{DefaultFormats, Formats}
import org.json4s.jackson.Serialization

import org.apache.spark.sql.execution.streaming.state.binshift.OrWarn
import org.apache.spark.sql.execution.streaming.state.RocksDBCheckpointMetadata
import org.apache.spark.sql.execution.streaming.state.binshift.statistics.{RowCounts, RowsByBin}

/**
 * The file in a snapshot that says how many rows each bin has, for example `{"rows":{"17":230},"internal":{"17":12}}`. Bins without
 * rows aren't listed.
 *
 * Relies on Spark: the zip of a snapshot contains all small files of the directory that it is made of, and a load unpacks all of them.
 * So Spark's own provider and older versions of binshift can read a snapshot with this file, and a snapshot that they make has none.
 */
private[storage] object SnapshotRows extends OrWarn {
  private val Name = "binshift-rows.json"
  private implicit val formats: Formats = DefaultFormats

  /** If the file can't be written, the snapshot has none. */
  def write(dir: File, rows: RowsByBin): Unit = {
    val counts = rows.toMap
    def numbers(of: RowCounts => Long) = counts.collect { case (bin, n) if of(n) != 0 => bin.toString -> of(n) }
    val file = new File(dir, Name)
    orWarn(s"$file cannot be written; whoever loads the snapshot counts its rows", file.delete(): Unit)(
      Files.writeString(file.toPath, Serialization.write(Content(numbers(_.rows), numbers(_.internal)))): Unit)
  }

  /**
   * Removes the file from the directory of a snapshot that is loaded, and reads it. Returns `None` if there is none, or if it doesn't
   * add up to the numbers that Spark has written down.
   */
  def take(dir: File, snapshot: RocksDBCheckpointMetadata): Option[RowsByBin] = {
    val file = new File(dir, Name)
    try orWarn(s"$file cannot be read; the rows of the snapshot are counted instead", Option.empty[RowsByBin]) {
        Option.when(file.exists) {
          val Content(rows, internal) = Serialization.read[Content](Files.readString(file.toPath))
          val all = rows.map { case (bin, n) => bin.toInt -> RowCounts(n, 0) }.toSeq ++
            internal.map { case (bin, n) => bin.toInt -> RowCounts(0, n) }
          RowsByBin(all)
        }.filter { _.total == RowCounts(snapshot.numKeys, snapshot.numInternalKeys) }
      }
    finally file.delete(): Unit
  }
}

/** Numbers of rows by bin, in families that users see and in those that Spark keeps for itself. */
private final case class Content(rows: Map[String, Long], internal: Map[String, Long])
