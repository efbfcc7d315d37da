package org.apache.spark.sql.binshift.client

import java.util.UUID

import org.json4s.jackson.JsonMethods.{compact, render}

import org.apache.spark.sql.binshift.internals.QueryFailure
import org.apache.spark.sql.binshift.migration.{MigrationOptions, MigrationPlan}
import org.apache.spark.sql.binshift.planning.{BalancedTable, PartitionPlaces, Strategy}
import org.apache.spark.sql.binshift.query.{MigrationProgress, QueryRouters, Submissions}
import org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution
import org.apache.spark.sql.execution.streaming.state.binshift.BinshiftException
import org.apache.spark.sql.execution.streaming.state.binshift.routing.{RoutingEntry, RoutingTable}

/**
 * Plans and submits in the JVM what `Controller` does in Python, for SQL and for [[binshift.Binshift]].
 *
 * May be called from any thread. Failures are [[BinshiftException]]s with Python's conditions.
 */
private[binshift] final class Rescaler(query: MicroBatchExecution) {
  private val router = QueryRouters.of(query)
  private val submissions = new Submissions(router)

  /** The entry in force. */
  def inForce: RoutingEntry = router.now.tables.current.getOrElse(throw QueryFailure.notPlanned(query))

  /** Makes a plan; nothing changes until it is submitted. */
  def plan(partitions: Int, cut: Cut = Cut(), isPrepared: Boolean = true): PlanOfEntry = {
    requireActive()
    val now = inForce
    planTo(now, BalancedTable.of(now.table, partitions), cut, isPrepared)
  }

  def submit(plan: String, options: MigrationOptions, id: String = UUID.randomUUID().toString): String = {
    requireActive()
    if (options.startEpoch.exists(_ < 0)) throw BinshiftException(
      "INVALID_VALUE", "name" -> "start_epoch", "value" -> options.startEpoch.get).plan(
      s"start epoch ${options.startEpoch.get} is impossible; give a whole number of at least 0")
    if (options.placeOn.nonEmpty) places.requireLive(options.placeOn)
    submissions.submit(id, plan, compact(render(options.toJson)), outlivesDriver = false)
    id
  }

  def submit(plan: PlanOfEntry, options: MigrationOptions): Submitted = Submitted(submit(plan.json, options), plan)

  def rescale(partitions: Int, cut: Cut, options: MigrationOptions): Submitted =
    submit(plan(partitions, cut, options.isPrepared), options)

  /**
   * Spreads the bins evenly over the partitions, and the partitions over the live executors.
   *
   * @param grow whether executors that run no partition get new ones, as many as the others have on average
   */
  def rebalance(grow: Boolean, cut: Cut, options: MigrationOptions): Submitted = {
    requireActive()
    val now = inForce
    val rejoined = places.rejoined
    rejoined.requireLive(options.placeOn)
    val n = if (grow) rejoined.partitionsWithIdle(now.table.bins) else now.table.partitions
    val target = BalancedTable.of(now.table, n)
    val chosen =
      if (n > now.table.partitions) {
        options.copy(placeOn = if (options.placeOn.isEmpty) rejoined.idle else options.placeOn)
      } else options.copy(places = rejoined.spread(target.sizes.toSeq, options.placeOn))
    submit(planTo(now, target, cut, options.isPrepared), chosen)
  }

  /** Has all partitions leave an executor. */
  def drain(executor: String, options: MigrationOptions): Submitted = {
    requireActive()
    val now = inForce
    val moved = places.drained(executor, options.placeOn)
    submit(planTo(now, now.table, Cut(), isPrepared = true), options.copy(vacate = Some(executor), places = moved))
  }

  /** Cancels a migration, by default the one under way; returns its id. */
  def cancel(id: Option[String] = None): String = {
    requireActive()
    submissions.cancel(id)
  }

  /** Undoes a migration, by default the one under way, or else the one that took the newest step; returns its id. */
  def rollBack(id: Option[String] = None): String = {
    requireActive()
    submissions.rollBack(id)
  }

  def progress(id: String): MigrationProgress = MigrationProgress.of(router, id)

  private def planTo(now: RoutingEntry, target: RoutingTable, cut: Cut, isPrepared: Boolean): PlanOfEntry = {
    def default =
      if (isPrepared) Strategy.default(now.table) else Strategy.atOnce(fetchesRows = router.deliveries.whyWholeBins.isEmpty)
    val strategy = cut.strategy.fold(default)(Strategy.parse)
    PlanOfEntry(now.epoch, strategy.plan(now.table, target, cut.gap))
  }

  private def places: PartitionPlaces = PartitionPlaces(router.placement())

  private def requireActive(): Unit = if (!query.isActive) throw QueryFailure.ended(query)
}

/**
 * How moves are cut into steps.
 *
 * @param strategy a name as on the command line. By default, each step has a quarter of the bins; without copies, it is what
 *                 takes effect soonest
 * @param gap      epochs that stay idle between two steps
 */
private[binshift] final case class Cut(strategy: Option[String] = None, gap: Int = 0)

/** @param epoch since when the table that the plan starts from has been in force */
private[binshift] final case class PlanOfEntry(epoch: Long, plan: MigrationPlan) {
  lazy val json: String = compact(render(plan.toJson(epoch)))
}

private[binshift] final case class Submitted(id: String, plan: PlanOfEntry)
