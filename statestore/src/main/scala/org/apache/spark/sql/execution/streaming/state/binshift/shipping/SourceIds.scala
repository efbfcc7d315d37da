package org.apache.spark.sql.execution.streaming.state.binshift.shipping

import scala.collection.mutable

import org.apache.spark.sql.execution.streaming.state.StateStoreId
import org.apache.spark.sql.execution.streaming.state.binshift.BinshiftException
import org.apache.spark.sql.execution.streaming.state.binshift.checkpoint.{Lineage, VersionFile}
import org.apache.spark.sql.execution.streaming.state.binshift.routing.EpochRouting
import org.apache.spark.sql.execution.streaming.state.binshift.storage.RocksDBArguments

/**
 * The ids under which a source committed its versions. Copies that follow the source may take longer than Spark keeps its commit
 * log. After that, the ids come from the source's changelogs, which are kept for as long as the order.
 *
 * Used by one thread at a time.
 */
private[shipping] final class SourceIds(source: StateStoreId, routing: EpochRouting, arguments: RocksDBArguments) {
  private val led = mutable.TreeMap.empty[Long, String]
  /** The newest version that Spark has purged from the commit log. */
  private var purged = -1L

  /**
   * The id of `version`; `None` unless the checkpoint has format 2.
   *
   * @param begun the newest committed version
   */
  def of(version: Long, begun: Long): Option[String] = Option.when(arguments.enableStateStoreCheckpointIds) {
    val logged = if (version <= purged) None else routing.committedId(source, version)
    logged.getOrElse {
      purged = math.max(purged, version)
      led.get(version).orElse(look(version, begun)).getOrElse(throw BinshiftException("CHECKPOINT_ID_MISSING",
          "version" -> version)
          .migration(
            s"the changelogs of $source do not say which file of version $version was committed; restore them from a copy"))
    }
  }

  /** Searches the changelogs from the newest one back. Each contains the ids of the versions before it. */
  private def look(version: Long, begun: Long): Option[String] = routing.committedId(source, begun).flatMap { id =>
    val files = VersionFile.opened(source, arguments.conf, arguments.hadoopConf)
    try {
      led(begun) = id
      new Lineage(Lineage.in(files), led).id(version)
    } finally files.close()
  }
}
