package org.apache.spark.sql.execution.streaming.state.binshift.checkpoint

import org.apache.hadoop.fs.Path

import org.apache.spark.sql.execution.streaming.checkpointing.{CheckpointFileManager, FileSystemBasedCheckpointFileManager}
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager.CancellableFSDataOutputStream

/** Files of a checkpoint that are written anew in place of what was there. */
private[sql] object ReplacedFile {

  /**
   * A stream whose content is the file's, as a whole, once it is closed.
   *
   * Relies on Spark: its managers replace a file if that is asked for, but for the one that it uses where
   * a file system has no `FileContext`, which silently leaves the old file. There, the file is gone
   * from now until the stream is closed.
   */
  def create(manager: CheckpointFileManager, file: Path): CancellableFSDataOutputStream = {
    if (manager.isInstanceOf[FileSystemBasedCheckpointFileManager]) manager.delete(file)
    manager.createAtomic(file, overwriteIfPossible = true)
  }
}
