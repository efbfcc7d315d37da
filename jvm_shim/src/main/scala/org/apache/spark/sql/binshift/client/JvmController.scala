package org.apache.spark.sql.binshift.client

import binshift.MigrationStatus

import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.binshift.internals.{JarVersion, SparkInternals}
import org.apache.spark.sql.binshift.migration.MigrationOptions
import org.apache.spark.sql.binshift.query.QueryRouters
import org.apache.spark.sql.classic
import org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution
import org.apache.spark.sql.execution.streaming.state.binshift.BinshiftException
import org.apache.spark.sql.streaming.StreamingQuery

/** The implementation behind the public [[binshift.Controller]]. May be called from any thread. */
final class JvmController private (query: MicroBatchExecution) {
  private val rescaler = new Rescaler(query)

  def id: String = query.id.toString
  def bins: Int = rescaler.inForce.table.bins
  def partitions: Int = rescaler.inForce.table.partitions
  def assignment: Array[Int] = rescaler.inForce.table.owners.clone()

  def plan(partitions: Int, strategy: Option[String], gap: Int): JvmController.Planned =
    new JvmController.Planned(rescaler.plan(partitions, Cut(strategy, gap)))

  def submit(plan: String, prepare: Boolean, deadline: Option[String] = None, onTimeout: Option[String] = None): String =
    rescaler.submit(plan, options(prepare).copy(deadline = Limits.deadline(deadline, onTimeout)))

  def drain(executor: String): String = rescaler.drain(executor, options(isPrepared = true)).id

  def cancel(id: String): Unit =
    try rescaler.cancel(Some(id))
    catch {
      // The migration has finished.
      case e: BinshiftException if e.condition == "NO_MIGRATION" =>
    }

  def rollBack(id: String): Unit = rescaler.rollBack(Some(id))

  def status(id: String): MigrationStatus = {
    val p = rescaler.progress(id)
    MigrationStatus(p.state, p.stepsDone, p.scheduledEpoch, p.committedEpoch)
  }

  def migration: Option[String] = QueryRouters.of(query).snapshot().migration.map(_.id)

  private def options(isPrepared: Boolean): MigrationOptions =
    MigrationOptions(None, isPrepared, Nil, vacate = None, places = Map.empty)
}

object JvmController {
  def version: String = JarVersion.version

  def of(query: StreamingQuery): JvmController = new JvmController(AttachedQuery.of(query))

  def find(session: SparkSession, nameOrId: String): JvmController = {
    SparkInternals.requireSupportedVersion()
    new JvmController(RunningQueries.find(session.asInstanceOf[classic.SparkSession], nameOrId))
  }

  /** A plan, of which callers see only the totals. */
  final class Planned private[JvmController] (made: PlanOfEntry) {
    def json: String = made.json
    def steps: Int = made.plan.steps.size
    def binsMoved: Int = made.plan.steps.map(_.moves.size).sum

    def summary: String =
      s"${made.plan.source.partitions} -> ${made.plan.target.partitions} partitions, ${made.plan.strategy}, $binsMoved bins " +
        s"in $steps steps"
  }
}
