package org.apache.spark.sql.execution.streaming.state.binshift.checkpoint

import java.io.File
import java.nio.file.{Files, StandardCopyOption}
import java.util.zip.ZipInputStream

import org.apache.hadoop.fs.{FileSystem, Path}

import org.apache.spark.sql.execution.streaming.state.RocksDBCheckpointMetadata

/**
 * Reads a snapshot's list of its files, which is in its zip.
 *
 * Relies on Spark: the zip contains the list under this name.
 */
private[binshift] object SnapshotList {
  private val Name = "metadata"

  /** Copies the list to `to`, and reads it; `None` if the zip has none. */
  def read(fs: FileSystem, zip: Path, to: File): Option[RocksDBCheckpointMetadata] = {
    val in = new ZipInputStream(fs.open(zip))
    try Option.when(Iterator.continually(in.getNextEntry).takeWhile(_ != null).exists(_.getName == Name)) {
        Files.copy(in, to.toPath, StandardCopyOption.REPLACE_EXISTING)
        RocksDBCheckpointMetadata.readFromFile(to)
      }
    finally in.close()
  }
}
