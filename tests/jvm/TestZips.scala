package org.apache.spark.sql.binshift

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path

import org.apache.spark.sql.execution.streaming.checkpointing.FileContextBasedCheckpointFileManager
import org.apache.spark.sql.execution.streaming.state.binshift.Faults

/** Spark's own file manager for checkpoints, with the point `snapshot.zip` before the list of a snapshot's files becomes visible. */
class TestZips(path: Path, conf: Configuration) extends FileContextBasedCheckpointFileManager(path, conf) {
  override def renameTempFile(source: Path, target: Path, overwrite: Boolean): Unit = {
    if (target.getName.endsWith(".zip")) Faults.at("snapshot.zip")
    super.renameTempFile(source, target, overwrite)
  }
}
