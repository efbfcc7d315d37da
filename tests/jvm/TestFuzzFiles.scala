package org.apache.spark.sql.binshift

import org.apache.spark.sql.binshift.migration.PlannedMigration
import org.apache.spark.sql.binshift.query.ServedRequests
import org.apache.spark.sql.binshift.retention.RunEnd
import org.apache.spark.sql.binshift.statistics.SavedStatistics
import org.apache.spark.sql.execution.streaming.state.binshift.checkpoint.{ControlDir, Savepoints}

/** The readers of the driver's files, for `TestFuzz`. */
object TestFuzzFiles {
  private[sql] def reader(dir: ControlDir, name: String): () => Any = name match {
    case "ended.json" => () => RunEnd.read(dir)
    case plan if plan.startsWith("plans/") =>
      () =>
        PlannedMigration.read(dir).foreach { m =>
          // Submitting refuses this with a condition; see QueryRouter.
          try m.plan.requireFitting()
          catch { case _: IllegalArgumentException => () }
        }
    case savepoint if savepoint.startsWith("savepoints/") => () => new Savepoints(dir).kept()
    case "served.json" => () => ServedRequests.read(dir)
    case "statistics.json" => () => SavedStatistics.read(dir)
  }
}
