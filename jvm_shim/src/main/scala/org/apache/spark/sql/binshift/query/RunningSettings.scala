package org.apache.spark.sql.binshift.query

import org.json4s.JObject
import org.json4s.JsonDSL._

import org.apache.spark.SPARK_VERSION
import org.apache.spark.sql.binshift.internals.JarVersion
import org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution
import org.apache.spark.sql.execution.streaming.state.binshift.routing.RoutingTable

/**
 * The settings of a running query that decide how well it can be rescaled, for `binshift doctor`.
 *
 * Other settings are left out, because some contain secrets, and everybody who may read the checkpoint can read the answer.
 * Called on the thread that serves requests.
 */
private[binshift] object RunningSettings {

  /** @param slots tasks that run at a time, on all executors together */
  def of(query: MicroBatchExecution, table: Option[RoutingTable], executors: Int): JObject = {
    val context = query.sparkSession.sparkContext
    val ofSession = query.sparkSessionForStream.sessionState.conf.getAllConfs
    val ofApplication = context.getConf.getAll.toMap
    val told = (ofApplication ++ ofSession).filter { case (name, _) => isTold(name) }
    ("binshift" -> JarVersion.version) ~ ("spark" -> SPARK_VERSION) ~ ("checkpoint" -> query.resolvedCheckpointRoot) ~
      ("is_local" -> context.isLocal) ~ ("executors" -> executors) ~ ("slots" -> context.defaultParallelism) ~
      ("partitions" -> table.map(_.partitions)) ~ ("settings" -> told)
  }

  private def isTold(name: String): Boolean = Families.exists(name.startsWith) || Names.contains(name)

  private val Families = Seq("spark.sql.streaming.stateStore.", "spark.locality.wait")

  private val Names = Set("spark.sql.streaming.minBatchesToRetain", "spark.sql.streaming.checkpointFileManagerClass",
    "spark.io.encryption.enabled", "spark.speculation")
}
