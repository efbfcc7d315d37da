package org.apache.spark.sql.binshift.query

import org.json4s.{JObject, JValue}
import org.json4s.JsonDSL._
import org.json4s.jackson.JsonMethods.{compact, parse, render}

import org.apache.spark.sql.binshift.internals.{QueryFailure, SparkInternals}
import org.apache.spark.sql.binshift.migration.{MigrationPlan, OwnExecutors}
import org.apache.spark.sql.binshift.statistics.QueryStatistics
import org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution
import org.apache.spark.sql.execution.streaming.state.binshift.routing.RoutingEntry

/** One run of a query, for Python. All methods may be called from any thread. */
final class QueryHandle private[binshift] (query: MicroBatchExecution) {
  private val router = QueryRouters.of(query)
  private val statisticsOfRun = QueryStatistics.of(query)

  def requireActive(): Unit = if (!query.isActive) throw router.audits.failure.getOrElse(QueryFailure.ended(query))

  /**
   * Returns true once an epoch of this run is committed. From then on, all questions have answers.
   *
   * @throws BinshiftException if that will never happen, because the query has ended or keeps no state
   */
  def hasBegun(): Boolean = {
    requireActive()
    router.statistics().isDefined || {
      if (!router.hasPlanned) QueryFailure.withoutState(query).foreach(throw _)
      false
    }
  }

  /** Facts that don't change while the query runs, except for `is_active` and `task_slots`. */
  def facts(): String = json(
    ("id" -> query.id.toString) ~ ("run_id" -> query.runId.toString) ~ ("name" -> Option(query.name)) ~
      ("is_active" -> query.isActive) ~ ("trigger_interval_ms" -> SparkInternals.triggerIntervalMs(query)) ~
      ("reports_kept" -> SparkInternals.reportsKept(query)) ~
      ("task_slots" -> router.ownExecutors.taskSlots) ~ ("is_real_time" -> router.protocol.isRealTime))

  /**
   * The table in force, and the reasons that keep rows from coming on demand; null while the query hasn't planned its first
   * epoch.
   */
  def routing(): String = router.now.tables.current.map(e =>
    json(entryJson(e) ~ ("assignment" -> e.table.assignment.toSeq) ~ ("whole_bins" -> router.deliveries.whyWholeBins))).orNull

  /** Submits a plan with the options of [[MigrationOptions]]. Returns the migration's id. */
  def submit(plan: String, options: String): String = {
    requireActive()
    router.submit(plan, options).id
  }

  /** The first epoch at which `plan` can take effect if it is submitted now, prepared or not; -1 if that isn't known. */
  def earliestEpoch(plan: String, isPrepared: Boolean): Long =
    router.scheduler.earliestEpoch(MigrationPlan.fromJson(parse(plan)), isPrepared).getOrElse(-1L)

  /** The live executors, the executors of each partition, and the executors that get no partition (see [[PlacementSnapshot]]). */
  def placement(): String = {
    requireActive()
    val p = router.placement()
    json(("executors" -> p.executors) ~ ("partitions" -> p.partitions) ~
      ("decommissioned" -> p.decommissioned) ~ ("leaving" -> p.leaving) ~ ("excluded" -> p.excluded) ~
      ("application" -> SparkInternals.applicationOf(query.sparkSession.sparkContext)) ~
      ("configured" -> OwnExecutors.configured(query.sparkSession.sparkContext)))
  }

  /** Fails if binshift must not change the number of executors. */
  def requireOwnExecutors(): Unit = {
    requireActive()
    router.ownExecutors.requireOurs()
  }

  /** Asks Spark for this total number of executors. */
  def requestExecutors(total: Int): Unit = {
    requireActive()
    router.ownExecutors.request(total)
  }

  /**
   * Gives back executors, whose ids are separated by commas, as soon as no epoch needs them. Executors with partitions stay,
   * whether of this query or another one, even if the partitions arrive before the executors go. Returns those that will go, as
   * far as is known.
   */
  def giveBackExecutors(ids: String): String = {
    requireActive()
    router.ownExecutors.giveBack(ids.split(',').toSeq).mkString(",")
  }

  /** Lets autoscalers of other queries ask for executors. Works after the run has ended, too. */
  def leaveExecutorsToOthers(): Unit = router.ownExecutors.leaveToOthers()

  /** Executors with partitions of other queries of this driver; ids are separated by commas. */
  def executorsOfOthers(): String = OtherQueries.executorsInUse(router).toSeq.sorted.mkString(",")

  /** The epoch that this run has planned last (-1 before the first), and the time on the clock of the progress reports. */
  def plannedEpoch(): String =
    json(("epoch" -> router.now.epoch.getOrElse(-1L)) ~ ("at_ms" -> System.currentTimeMillis()))

  /** The statistics as of the last committed epoch (see [[StatisticsSnapshot]]), or null before the first. */
  def statistics(): Array[Byte] = router.statistics().map(_.toBytes).orNull

  /** Asks for the `n` hottest keys of the next epoch. The result is the argument for [[hotKeys]]. */
  def sampleKeys(n: Int): Long = {
    requireActive()
    statisticsOfRun.sampleKeys(n)
  }

  /** The hottest keys of an epoch after `after`, or null until it is committed. */
  def hotKeys(after: Long): String = statisticsOfRun.sampledKeys(after).map(k => json(k.toJson)).orNull

  def cancel(id: String): Unit = {
    requireActive()
    new Submissions(router).cancel(Some(id))
  }

  /** Undoes a migration, one under way or the last one. */
  def rollBack(id: String): Unit = {
    requireActive()
    new Submissions(router).rollBack(Some(id))
  }

  /** Makes a savepoint of the newest committed epoch; returns the content of its file, and its id. */
  def savepoint(name: String): String = {
    requireActive()
    val (id, made) = router.savepoints.make(name)
    json(made ~ ("id" -> id))
  }

  /** The migration under way as `{id, plan}`, or null. */
  def currentMigration(): String = router.snapshot().migration.map(m => json(("id" -> m.id) ~ ("plan" -> m.json))).orNull

  /** The numbers from which Python derives the state of migration `id`. */
  def progress(id: String): String = json(MigrationProgress.of(router, id).toJson)

  /** The steps that took effect, oldest first. */
  def history(): String = json(router.history().filter(_.step.exists(!_.isOpening)).map(e => entryJson(e)))

  /** The steps of one migration that took effect, oldest first. */
  def historyOf(id: String): String = json(router.historyOf(id).filter(_.step.exists(!_.isOpening)).map(e => entryJson(e)))

  /** Leaves out the owner of each bin, because there are many bins and many entries. */
  private def entryJson(e: RoutingEntry): JObject =
    ("epoch" -> e.epoch) ~ ("bins" -> e.table.bins) ~ ("partitions" -> e.table.partitions) ~
      ("written_at" -> e.writtenAt) ~
      ("step" -> e.step.map { s =>
        ("migration_id" -> s.migration) ~ ("index" -> s.index) ~ ("steps" -> s.steps) ~
          ("strategy" -> s.strategy) ~ ("moves" -> s.moves)
      })

  private def json(value: JValue): String = compact(render(value))
}
