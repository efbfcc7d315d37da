package org.apache.spark.sql.execution.streaming.state.binshift.checkpoint

import java.io.{EOFException, File, FileNotFoundException}
import java.nio.file.{Files, StandardCopyOption}
import java.util.zip.{ZipException, ZipInputStream}

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{ChecksumException, FileSystem, Path}

import org.apache.spark.sql.execution.streaming.state.{RocksDBCheckpointMetadata, RocksDBImmutableFile}

/**
 * Reads a snapshot's list of its files, which is in its zip.
 *
 * Relies on Spark: the zip contains the list under this name.
 */
private[sql] object SnapshotList {
  private val Name = "metadata"

  /**
   * The list of a snapshot.
   *
   * @param scratch a local directory for a file that is gone when this returns
   * @throws java.io.IOException if the zip isn't there, or isn't whole, as one that is empty or was cut short
   */
  def read(fs: FileSystem, zip: Path, scratch: File): RocksDBCheckpointMetadata = {
    val in = new ZipInputStream(fs.open(zip))
    try {
      if (!Iterator.continually(in.getNextEntry).takeWhile(_ != null).exists(_.getName == Name)) {
        throw new ZipException(s"$zip has no list of its files")
      }
      // Spark reads a list only from a file.
      val list = File.createTempFile("binshift-list-of-", s"-${zip.getName}", scratch)
      try {
        Files.copy(in, list.toPath, StandardCopyOption.REPLACE_EXISTING)
        RocksDBCheckpointMetadata.readFromFile(list)
      } finally list.delete(): Unit
    } finally in.close()
  }

  /** What `reading` reads of a snapshot; `None` if that isn't there, or isn't whole. */
  def ifWhole[A](reading: => A): Option[A] =
    try Some(reading)
    catch { case _: FileNotFoundException | _: EOFException | _: ZipException | _: ChecksumException => None }

  /**
   * The names of the files of which the snapshot of a store consists, beside its zip in the store's `directory`.
   *
   * @throws java.io.IOException if the zip isn't there, or isn't whole
   */
  def filesOf(fs: FileSystem, directory: Path, snapshot: VersionFile): Seq[String] =
    read(fs, new Path(directory, snapshot.name), new File(System.getProperty("java.io.tmpdir"))).immutableFiles.map(_.dfsFileName)

  /** The files of the snapshot of a store that are not in the store's `directory`, or are not whole, if it is the zip itself. */
  def absent(directory: Path, snapshot: VersionFile, hadoopConf: Configuration): Seq[String] = {
    val fs = directory.getFileSystem(hadoopConf)
    ifWhole(filesOf(fs, directory, snapshot)).fold(Seq(snapshot.name))(
      _.groupBy(folderOf).toSeq.flatMap { case (folder, wanted) =>
        wanted.diff(namesIn(fs, new Path(directory, folder)))
      })
  }

  /** The folders in a store's directory that have files of snapshots. */
  def folders: Seq[String] = Seq(RocksDBImmutableFile.SST_FILES_DFS_SUBDIR, RocksDBImmutableFile.LOG_FILES_DFS_SUBDIR)

  /** The one of them with a file. */
  def folderOf(name: String): String =
    if (RocksDBImmutableFile.isSstFile(name)) RocksDBImmutableFile.SST_FILES_DFS_SUBDIR
    else RocksDBImmutableFile.LOG_FILES_DFS_SUBDIR

  private def namesIn(fs: FileSystem, folder: Path): Seq[String] =
    try fs.listStatus(folder).toSeq.map(_.getPath.getName)
    catch { case _: FileNotFoundException => Nil }
}
