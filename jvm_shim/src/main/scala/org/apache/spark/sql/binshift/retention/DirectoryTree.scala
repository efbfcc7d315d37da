package org.apache.spark.sql.binshift.retention

import java.io.{FileNotFoundException, IOException}

import org.apache.hadoop.fs.{ChecksumFileSystem, FileStatus, FileSystem, Path}

import org.apache.spark.util.ThreadUtils

/**
 * What a directory held when it was listed.
 *
 * @param files       in it and below
 * @param directories itself and those below, the deepest first
 */
private[retention] final class DirectoryTree private (fs: FileSystem, files: Seq[Path], directories: Seq[Path]) {
  import DirectoryTree._

  /** The paths of its files. */
  def paths: Seq[String] = files.map(_.toUri.getPath)

  /** Deletes that, and nothing that has come since: a directory that holds such a file stays. */
  def delete(): Unit = {
    if (files.nonEmpty) ThreadUtils.parmap(files, "binshift-retired", MaxThreads)(fs.delete(_, false))
    // One that is not empty cannot be deleted so.
    directories.foreach(d =>
      try fs.delete(d, false)
      catch { case _: IOException => })
  }
}

private[retention] object DirectoryTree {
  private val MaxThreads = 16

  def of(fileSystem: FileSystem, dir: Path): DirectoryTree = {
    // Files with checksums of others are hidden otherwise, also where those others are gone.
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

  /** What is in a directory; nothing if it is not there. */
  def list(fs: FileSystem, dir: Path): Seq[FileStatus] =
    try fs.listStatus(dir).toSeq
    catch { case _: FileNotFoundException => Nil }
}
