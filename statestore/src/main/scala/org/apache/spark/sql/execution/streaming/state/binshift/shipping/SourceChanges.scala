package org.apache.spark.sql.execution.streaming.state.binshift.shipping

import org.apache.spark.sql.execution.streaming.state.binshift.checkpoint.VersionFile
import org.apache.spark.sql.execution.streaming.state.binshift.routing.EpochRouting
import org.apache.spark.sql.execution.streaming.state.binshift.storage.{RocksDBArguments, RowForm}
import org.apache.spark.sql.execution.streaming.state.{RecordType, StateStoreId}

/**
 * Reads the changes that a store has committed, version by version, from its changelogs.
 *
 * May be used by any thread that may call `idOf`. Each call reads a file of the checkpoint.
 *
 * @param idOf returns the id under which the store committed a version
 */
private[binshift] final class SourceChanges(source: StateStoreId, arguments: RocksDBArguments, idOf: Long => Option[String]) {

  /** Calls `consume(kind, native key, value)` for each record. Values are in their stored form. */
  def foreach(version: Long)(consume: (RecordType.Value, Array[Byte], Array[Byte]) => Unit): Unit = {
    val manager = VersionFile.opened(source, arguments.conf, arguments.hadoopConf)
    try {
      val changes = manager.getChangelogReader(version, idOf(version))
      try changes.foreach { case (kind, logged, value) =>
          consume(kind, RowForm.keyOf(kind, logged, arguments.conf), value)
        }
      finally changes.closeIfNeeded()
    } finally {
      manager.close()
    }
  }
}

private[binshift] object SourceChanges {
  /** The id under which `source` committed `version`; `None` unless the checkpoint has format 2. */
  def idOf(source: StateStoreId, version: Long, routing: EpochRouting, arguments: RocksDBArguments): Option[String] =
    Option.when(arguments.enableStateStoreCheckpointIds)(routing.checkpointIds(version).of(source))
}
