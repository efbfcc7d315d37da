package org.apache.spark.sql.execution.streaming.state.binshift.shipping

import java.io.{File, FileOutputStream}
import java.nio.file.{FileAlreadyExistsException, Files}

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{FileSystem, Path}

import org.apache.spark.sql.execution.streaming.state.{RocksDBFileMapping, RocksDBImmutableFile, RocksDBSstFile}
import org.apache.spark.sql.execution.streaming.state.binshift.checkpoint.SnapshotList
import org.apache.spark.sql.execution.streaming.state.binshift.storage.{HardLinks, OpenDatabases}
import org.apache.spark.util.Utils

/**
 * Files of a store's snapshots, fetched from the checkpoint into a directory of this executor.
 *
 * They are immutable and have unique names in the checkpoint, so a file can be used for any version that contains it. Files are
 * always complete. Thread-safe.
 *
 * @param root  the store's directory in the checkpoint
 * @param room  bounds the disk that all such files take together
 */
private[shipping] final class FetchedFiles(root: Path, room: FetchedFiles.Room, hadoopConf: Configuration) {
  /** Created with the first file. */
  lazy val dir: File = {
    isMade = true
    OpenDatabases.temporaryDir("binshift-standby")
  }
  lazy val fs: FileSystem = root.getFileSystem(hadoopConf)

  /** Sizes of the files, by their names in the checkpoint. */
  private var here = Map.empty[String, Long]
  @volatile private var isMade = false
  private var isClosed = false

  def isOpen: Boolean = synchronized(!isClosed)

  def has(file: RocksDBSstFile): Boolean = synchronized(here.contains(file.dfsSstFileName))

  def bytes: Long = synchronized(here.values.sum)

  /** The files that a snapshot names. */
  def of(zip: Path): Seq[RocksDBSstFile] = {
    val files = SnapshotList.read(fs, zip, dir).sstFiles
    val names = files.flatMap(f => Seq(f.dfsSstFileName, f.localFileName))
    names.find(name => new File(name).getName != name).foreach { name =>
      throw new IllegalStateException(s"$zip names the file $name, which would be outside of its directory")
    }
    files
  }

  /** @param pace called with the bytes of each piece; throws to give up */
  def fetch(file: RocksDBSstFile, pieceBytes: Int)(pace: Int => Unit): Unit = {
    room.require(file.sizeBytes, dir)
    val temporary = new File(dir, s"${file.dfsSstFileName}.part")
    try {
      copy(new Path(new Path(root, RocksDBImmutableFile.SST_FILES_DFS_SUBDIR), file.dfsSstFileName), temporary, pieceBytes)(pace)
      if (temporary.length != file.sizeBytes) {
        throw new IllegalStateException(s"${file.dfsSstFileName} has ${temporary.length} bytes instead of ${file.sizeBytes}")
      }
      synchronized {
        if (isClosed) throw new FetchedFiles.Unwanted
        Files.move(temporary.toPath, local(file.dfsSstFileName).toPath)
        here += file.dfsSstFileName -> file.sizeBytes
        ShippingThreads.standbyBytes.addAndGet(file.sizeBytes)
      }
    } finally Files.deleteIfExists(temporary.toPath)
  }

  def copy(from: Path, to: File, pieceBytes: Int)(pace: Int => Unit): Unit = {
    val in = fs.open(from)
    try {
      val out = new FileOutputStream(to)
      try {
        val buffer = new Array[Byte](pieceBytes)
        Iterator.continually(in.read(buffer)).takeWhile(_ >= 0).foreach { n =>
          out.write(buffer, 0, n)
          pace(n)
        }
      } finally out.close()
    } finally in.close()
  }

  def keepOnly(files: Seq[RocksDBSstFile]): Unit = synchronized {
    val names = files.map(_.dfsSstFileName).toSet
    (here.keySet -- names).foreach(free)
  }

  /**
   * Links those of `files` that were fetched into the directory of a store that is loaded from the snapshot of `version`. Returns those
   * that were not in the directory before.
   *
   * Relies on Spark: it doesn't fetch a file if the directory has one of that name which is mapped to the snapshot's file.
   */
  def link(files: Seq[RocksDBSstFile], into: File, mapping: RocksDBFileMapping, version: Long): Seq[File] = synchronized {
    val found = if (isClosed) Nil else files.filter(f => here.contains(f.dfsSstFileName))
    found.flatMap { file =>
      val target = new File(into, file.localFileName)
      val isNew =
        try {
          HardLinks.linkOrCopy(local(file.dfsSstFileName).toPath, target.toPath)
          true
        } catch { case _: FileAlreadyExistsException => false }
      // As Spark does with a file that it has fetched: the file belongs to an earlier version.
      if (isNew) mapping.mapToDfsFile(file.localFileName, file, version - 1)
      Option.when(isNew)(target)
    }
  }

  def close(): Unit = {
    synchronized {
      isClosed = true
      here.keys.foreach(free)
    }
    if (isMade) Utils.deleteRecursively(dir)
  }

  private def free(name: String): Unit = {
    here.get(name).foreach(bytes => ShippingThreads.standbyBytes.addAndGet(-bytes))
    here -= name
    Files.deleteIfExists(local(name).toPath)
  }

  private def local(name: String): File = new File(dir, name)
}

private[shipping] object FetchedFiles {
  /** Nobody wants the files any more. */
  final class Unwanted extends RuntimeException

  /** A bound on the disk that all standbys of an executor use. */
  final class Room(max: Long) {
    /** @throws java.io.IOException if `bytes` more would exceed the bound, or leave the disk of `dir` without a reserve for the stores */
    def require(bytes: Long, dir: File): Unit = {
      if (ShippingThreads.standbyBytes.get + bytes > max)
        throw new java.io.IOException(s"$bytes bytes more would exceed standbys.maxBytes, which is $max")
      val free = dir.getUsableSpace
      if (free - bytes < reserve(dir)) {
        throw new java.io.IOException(
          s"$bytes bytes more would leave only ${free - bytes} bytes on the disk of $dir, and the stores need those")
      }
    }

    /** True if so little of the disk is left that these files should be deleted. */
    def isScarce(dir: File): Boolean = dir.getUsableSpace < reserve(dir) / 2

    private def reserve(dir: File): Long = math.min(dir.getTotalSpace / ReservedPart, MaxReservedBytes)
  }

  private val ReservedPart = 20
  private val MaxReservedBytes = 8L << 30
}
