package org.apache.spark.sql.execution.streaming.state.binshift.storage

import java.nio.file.{FileAlreadyExistsException, Files, FileSystemException, Path}

/** Files that never change, under a second name. */
private[binshift] object HardLinks {
  /**
   * A copy where the disk has no hard links, or the two places are not on one disk.
   *
   * @throws java.nio.file.FileAlreadyExistsException if `to` is there
   */
  def linkOrCopy(from: Path, to: Path): Unit =
    try Files.createLink(to, from)
    catch {
      case e: FileAlreadyExistsException => throw e
      case _: UnsupportedOperationException | _: FileSystemException => Files.copy(from, to)
    }
}
