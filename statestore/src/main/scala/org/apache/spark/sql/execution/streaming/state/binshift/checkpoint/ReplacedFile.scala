package org.apache.spark.sql.execution.streaming.state.binshift.checkpoint

import org.apache.hadoop.fs.Path

import org.apache.spark.sql.execution.streaming.checkpointing.{CheckpointFileManager, FileSystemBasedCheckpointFileManager}
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager.CancellableFSDataOutputStream

/** Replaces files of a checkpoint. */
private[sql] object ReplacedFile {

  /**
   * A stream whose content replaces the file as a whole, once the stream is closed.
   *
   * Relies on Spark: its managers replace a file if asked to, except for the one for file systems without `FileContext`, which
   * silently keeps the old file. In that case, this deletes the file first, so it is missing until the stream is closed.
   */
  def create(manager: CheckpointFileManager, file: Path): CancellableFSDataOutputStream = {
    if (manager.isInstanceOf[FileSystemBasedCheckpointFileManager]) manager.delete(file)
    manager.createAtomic(file, overwriteIfPossible = true)
  }
}
