package org.apache.spark.sql.execution.streaming.state.binshift.storage

import java.io.{File, FileOutputStream}
import java.nio.file.Files
import java.util.zip.ZipInputStream

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path

import org.apache.spark.sql.execution.streaming.state.{RocksDBCheckpointMetadata, RocksDBImmutableFile}
import org.apache.spark.sql.execution.streaming.state.binshift.Faults
import org.apache.spark.sql.execution.streaming.state.binshift.keys.{ColumnFamily, NumberedFamily}
import org.apache.spark.util.{ThreadUtils, Utils}

/**
 * Fetches the files of a snapshot that contain wanted bins, several at a time.
 *
 * Relies on Spark: a snapshot is a zip with RocksDB's small files, and a list of the others, which are immutable and are in `SSTs/`
 * beside it.
 */
private[binshift] object PartialSnapshot {
  private val Threads = 8

  /**
   * Fills `dir` with a database that has all rows of `bins`, and some of other bins.
   *
   * @param zip the snapshot
   * @return the snapshot's metadata; its number of rows counts all bins
   */
  def fetch(zip: Path, dir: File, bins: Set[Int], partition: Int, hadoopConf: Configuration): RocksDBCheckpointMetadata = {
    val fs = zip.getFileSystem(hadoopConf)
    Utils.deleteRecursively(dir)
    Utils.createDirectory(dir)
    unzip(new ZipInputStream(fs.open(zip)), dir)
    val description = new File(dir, "metadata")
    val metadata = RocksDBCheckpointMetadata.readFromFile(description)
    description.delete()
    if (Option(metadata.logFiles).exists(_.nonEmpty)) throw new Manifest.Unknown("changes in a log beside the files")
    val current = Files.readString(new File(dir, "CURRENT").toPath).trim
    val list = new File(dir, current).toPath
    val manifest = Manifest.parse(Files.readAllBytes(list))
    val ranges = families(metadata).flatMap(_.ranges(bins.toSeq.sorted))
    val unwanted = manifest.files.collect { case (number, (from, to)) if !ranges.exists(meets(from, to, _)) => number }.toSet
    Files.write(list, manifest.without(unwanted))
    val files = metadata.sstFiles.filterNot(f => unwanted(numberOf(f.localFileName)))
    ThreadUtils.parmap(files, "binshift-fetch", Threads) { file =>
      Faults.at("checkpoint.file", partition)
      val local = new File(dir, file.localFileName)
      val in = fs.open(new Path(new Path(zip.getParent, RocksDBImmutableFile.SST_FILES_DFS_SUBDIR), file.dfsSstFileName))
      try Files.copy(in, local.toPath)
      finally in.close()
      Faults.change("checkpoint.file", local.toPath)
      if (local.length != file.sizeBytes) {
        throw new IllegalStateException(s"${file.dfsSstFileName} has ${local.length} bytes instead of ${file.sizeBytes}")
      }
    }
    metadata
  }

  private def families(metadata: RocksDBCheckpointMetadata): Seq[NumberedFamily] =
    metadata.columnFamilyMapping.filter(_.nonEmpty).fold(Seq(NumberedFamily(ColumnFamily.Default, None))) {
      _.toSeq.map { case (name, number) =>
        NumberedFamily(ColumnFamily(name, isInternal = false), Some(number.toString.toShort))
      }
    }

  private def meets(from: Array[Byte], to: Array[Byte], range: (Array[Byte], Array[Byte])): Boolean =
    java.util.Arrays.compareUnsigned(from, range._2) < 0 && java.util.Arrays.compareUnsigned(to, range._1) >= 0

  /** RocksDB names its files by their numbers. */
  private def numberOf(name: String): Long =
    name.stripSuffix(".sst").toLongOption.getOrElse(throw new Manifest.Unknown(s"a file of the name $name"))

  private def unzip(in: ZipInputStream, dir: File): Unit =
    try {
      Iterator.continually(in.getNextEntry).takeWhile(_ != null).foreach { entry =>
        val out = new FileOutputStream(new File(dir, new File(entry.getName).getName))
        try in.transferTo(out)
        finally out.close()
      }
    } finally in.close()
}
