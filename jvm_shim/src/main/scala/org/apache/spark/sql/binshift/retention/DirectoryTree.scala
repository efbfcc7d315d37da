package org.apache.spark.sql.binshift.retention

import java.io.{FileNotFoundException, IOException}

import org.apache.hadoop.fs.{ChecksumFileSystem, FileStatus, FileSystem, Path}

import org.apache.spark.sql.execution.streaming.state.binshift.Faults
import org.apache.spark.util.ThreadUtils

/**
 * The content of a directory when it was listed.
 *
 * @param files       files in it and below
 * @param directories the directory and those below, the deepest first
 */
private[retention] final class DirectoryTree private (fs: FileSystem, files: Seq[Path], directories: Seq[Path]) {
  import DirectoryTree._

  def isEmpty: Boolean = files.isEmpty

  /** The same without some files. */
  def without(isSpared: Path => Boolean): DirectoryTree = new DirectoryTree(fs, files.filterNot(isSpared), directories)

  /** The paths of its files. */
  def paths: Seq[String] = files.map(_.toUri.getPath)

  /** Deletes the listed files, and nothing that has been added since. A directory that holds such a file stays. */
  def delete(): Unit = {
    if (files.nonEmpty) ThreadUtils.parmap(files, "binshift-retired", MaxThreads) { file =>
      fs.delete(file, false)
      Faults.at("retired.file")
    }
    // This doesn't delete a directory that isn't empty.
    directories.foreach(d =>
      try fs.delete(d, false)
      catch { case _: IOException => })
  }
}

private[retention] object DirectoryTree {
  private val MaxThreads = 16

  def of(fileSystem: FileSystem, dir: Path): DirectoryTree = {
    // Files with checksums are hidden otherwise, even if the files that they belong to no longer exist.
    val fs = fileSystem match {
      case local: ChecksumFileSystem => local.getRawFileSystem
      case other => other
    }
    val (files, directories) = in(fs, dir)
    new DirectoryTree(fs, files, directories)
  }

  private def in(fs: FileSystem, dir: Path): (Seq[Path], Seq[Path]) = {
    val (dirs, files) = list(fs, dir).partition(_.isDirectory)
    val below = dirs.map(d => in(fs, d.getPath))
    (files.map(_.getPath) ++ below.flatMap(_._1), below.flatMap(_._2) :+ dir)
  }

  /** Lists a directory; returns nothing if it doesn't exist. */
  def list(fs: FileSystem, dir: Path): Seq[FileStatus] =
    try fs.listStatus(dir).toSeq
    catch { case _: FileNotFoundException => Nil }
}
