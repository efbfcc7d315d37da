package org.apache.spark.sql.execution.streaming.state.binshift.storage

import java.nio.file.{FileAlreadyExistsException, Files, FileSystemException, Path}

/** Gives files that never change a second name. */
private[binshift] object HardLinks {
  /**
   * Makes a hard link, or a copy if the disk has no hard links, or the two places are on different disks.
   *
   * @throws java.nio.file.FileAlreadyExistsException if `to` exists
   */
  def linkOrCopy(from: Path, to: Path): Unit =
    try Files.createLink(to, from)
    catch {
      case e: FileAlreadyExistsException => throw e
      case _: UnsupportedOperationException | _: FileSystemException => Files.copy(from, to)
    }
}
