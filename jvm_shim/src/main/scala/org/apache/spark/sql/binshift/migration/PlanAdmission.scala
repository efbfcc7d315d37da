package org.apache.spark.sql.binshift.migration

import org.apache.spark.internal.Logging
import org.apache.spark.sql.binshift.internals.SparkInternals
import org.apache.spark.sql.binshift.realtime.EpochProtocol
import org.apache.spark.sql.binshift.routing.RunState
import org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution
import org.apache.spark.sql.execution.streaming.state.binshift.BinshiftException
import org.apache.spark.sql.execution.streaming.state.binshift.checkpoint.{ChangedKeys, ControlDir, Layout}
import org.apache.spark.sql.execution.streaming.state.binshift.routing.RoutingEntry

/** Refuses plans that a run can't carry out, before anything has changed. Called under the lock of the run. */
private[migration] final class PlanAdmission(
    query: MicroBatchExecution, run: RunState, dir: ControlDir, relocation: Relocation, shipments: ShipmentCoordinator,
    protocol: EpochProtocol, isReplaced: () => Boolean) extends Logging {

  /**
   * The part of `submitted` that can be carried out, which is mostly all of it.
   *
   * @param underWay the migration that isn't over, if there is one
   * @param now      the entry in force
   * @param changed  operators whose bins cannot move, because their keys change
   * @throws BinshiftException if the plan must be refused
   */
  def admitted(
      submitted: PlannedMigration, underWay: Option[PlannedMigration], layout: Layout, now: RoutingEntry,
      changed: Seq[ChangedKeys]): PlannedMigration = {
    underWay.foreach(m => throw BinshiftException("MIGRATION_UNDER_WAY", "migration_id" -> m.id).migration(inTheWay(m)))
    val m = withDeadline(withoutPlaces(submitted), now)
    m.options.application.filterNot(submitted.application.contains).foreach { other =>
      throw BinshiftException("EXECUTORS_CHANGED", "application" -> other).plan(
        s"the plan names executors of application $other, but the query now runs in ${submitted.application.mkString}, which has " +
          "other executors; plan again")
    }
    if (m.options.placeOn.nonEmpty) Executors.of(query.sparkSession.sparkContext).requireLive(m.options.placeOn)
    requireFitting(m, now)
    requireRoom(m, now)
    m.options.startEpoch.foreach { e =>
      val earliest = run.now.epoch.getOrElse(now.epoch) + 1
      if (e < earliest) {
        throw BinshiftException("EPOCH_PASSED", "epoch" -> e, "earliest" -> earliest).plan(
          s"the start epoch $e has passed; the earliest epoch that can change is $earliest")
      }
    }
    if (m.plan.steps.nonEmpty) {
      layout.unsupported.headOption.foreach { o =>
        throw BinshiftException.unsupportedOperator(
          s"operator ${o.name} cannot migrate, since the keys of its state may differ from the columns by " +
            "which Spark distributes its rows: a typed key of another type than its column, a timestamp that goes through " +
            "Python, or a float that may be null in pandas; the query runs on as it is")
      }
      changed.headOption.foreach(c => throw c.refusal("the query runs on as it is"))
    }
    if (!m.isIdle) requireAlone(m)
    m
  }

  /** The message for a plan that is refused because `m` isn't over. */
  private def inTheWay(m: PlannedMigration): String =
    if (m.rollsBack) {
      s"migration ${m.id} is about to be rolled back, because ${m.stopped.get.why}; wait until that is over, or cancel it " +
        "before you submit another plan"
    } else if (!m.cancelled) {
      s"migration ${m.id} is under way (${m.plan.steps.size} steps); wait for it or cancel it before you submit another plan"
    } else if (shipments.isFetching) {
      s"migration ${m.id} is cancelled, but the bins of its last step are still on their way; submit the plan again when " +
        "they have arrived"
    } else {
      s"migration ${m.id} is cancelled, but a step is already scheduled and takes effect with the next epoch; feed the query " +
        "data, then plan and submit again"
    }

  /** Makes requests to the checkpoint. */
  private def requireAlone(m: PlannedMigration): Unit = {
    PlannedMigration.read(dir).find(_.id != m.id).foreach { theirs =>
      throw BinshiftException("MIGRATION_UNDER_WAY", "migration_id" -> theirs.id).migration(
        s"migration ${theirs.id} was accepted by another run of the query since this one began; if that run is over, start the " +
          "query again, and it continues with the migration; otherwise stop this run")
    }
    if (isReplaced()) throw BinshiftException("ANOTHER_RUN", "checkpoint" -> dir.path.getParent).configuration(
      s"another run of query ${query.id} has taken the place of this one; submit the plan there, and stop this one")
  }

  /** Removes what a plan can't do while stores are closed at each commit, because no partition stays on an executor then. */
  private def withoutPlaces(m: PlannedMigration): PlannedMigration =
    if (!m.options.movesPartitions || !SparkInternals.unloadsStores(query.sparkSessionForStream)) m
    else m.options.vacate match {
      case Some(executor) =>
        throw BinshiftException("STORES_UNLOADED", "executor" -> executor).plan(
          s"executor '$executor' cannot be drained, because ${SparkInternals.UnloadKey} is true and no state stays on it " +
            "between epochs; have Spark decommission it, or start the query again with the setting false")
      case None =>
        logWarning(s"query ${query.id}: migration ${m.id} moves no whole partitions, because ${SparkInternals.UnloadKey} is " +
          "true: their tasks run wherever a slot is free")
        m.copy(options = m.options.copy(places = Map.empty))
    }

  /** Lets the time of the deadline begin. */
  private def withDeadline(m: PlannedMigration, now: RoutingEntry): PlannedMigration = {
    if (protocol.isRealTime) m.options.guard.foreach(g =>
      throw BinshiftException("REAL_TIME_UNSUPPORTED", "what" -> "a guard").plan(
        s"a guard of $g is impossible in real-time mode, whose epochs are as long as the trigger says; give a deadline instead"))
    val planned = run.now.epoch.getOrElse(now.epoch)
    m.copy(options = m.options.copy(deadline = m.options.deadline.map(_.begun(System.currentTimeMillis(), planned))))
  }

  private def requireFitting(m: PlannedMigration, now: RoutingEntry): Unit = {
    if (m.plan.source != now.table) {
      throw BinshiftException("PLAN_OUTDATED", "epoch" -> now.epoch).plan(
        s"the plan starts from a table with ${m.plan.source.partitions} partitions and " +
          s"${m.plan.source.bins} bins that is not the one in force since epoch ${now.epoch} " +
          s"(${now.table.partitions} partitions, ${now.table.bins} bins); plan again")
    }
    try m.plan.requireFitting()
    catch {
      case e: IllegalArgumentException => throw BinshiftException("PLAN_DOES_NOT_FIT").plan(
          s"the plan does not fit: ${e.getMessage.stripPrefix("requirement failed: ")}; plan again")
    }
  }

  private def requireRoom(m: PlannedMigration, now: RoutingEntry): Unit = {
    val (partitions, leaving) = (m.plan.steps.map(_.partitions).distinct, relocation.leavingWith(m.options))
    partitions.foreach(protocol.requireRoomFor(_, now.table.partitions, leaving))
    if (m.options.vacate.nonEmpty) (now.table.partitions +: partitions).foreach(protocol.requireRoomWithout(leaving, _))
  }
}
