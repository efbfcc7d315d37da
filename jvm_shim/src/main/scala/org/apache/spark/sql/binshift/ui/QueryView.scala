package org.apache.spark.sql.binshift.ui

import org.apache.spark.sql.binshift.internals.CommittedEpoch
import org.apache.spark.sql.binshift.migration.{AuditView, StandbyView}
import org.apache.spark.sql.binshift.query.QueryRouters
import org.apache.spark.sql.binshift.statistics.{OperatorSnapshot, QueryStatistics, StatisticsSnapshot}
import org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution
import org.apache.spark.sql.execution.streaming.state.binshift.routing.RoutingEntry

/**
 * The state of a query at one moment, for people and their monitoring.
 *
 * @param loads     loads of the partitions in the last committed epoch, which may have had another table than `entry`
 * @param loadsOf   that epoch
 * @param misplaced partitions that should run on another executor than they do
 * @param evacuated partitions that have left executors which Spark decommissions, in this run
 * @param standbys  standbys of each partition that has any
 * @param audit     the results of the audits of the newest steps
 * @param takenOver partitions that standbys have taken over, in this run
 */
private[binshift] final case class QueryView(
    epoch: Option[Long],
    entry: Option[RoutingEntry],
    migration: Option[MigrationView],
    loads: Seq[PartitionLoad],
    loadsOf: Option[Long],
    misplaced: Int,
    evacuated: Long,
    standbys: Map[Int, Seq[StandbyView]],
    takenOver: Long,
    audit: Option[AuditView]) {

  /** The most versions that a standby lacks, among those that have a snapshot. */
  def standbyLag: Long = standbys.values.flatten.flatMap(_.lag).maxOption.getOrElse(0L)

  /** The number of standbys that have a whole snapshot. */
  def standbysReady: Int = standbys.values.flatten.count(_.lag.isDefined)

  /** The number of partitions that own no bins yet: they are being opened, and get their bins at a later step. */
  def empty: Int = entry.fold(0)(_.table.sizes.count(_ == 0))

  /** Reads and writes of the busiest partition in the last epoch, divided by the mean of all partitions; 1 means an even load. */
  def skew: Double = {
    val touches = loads.map(l => (l.reads + l.writes).toDouble)
    if (touches.sum > 0) touches.max * touches.size / touches.sum else 1
  }
}

/**
 * @param awaited bins whose copies the next step waits for
 * @param waits   what it waits for, in words that go on after "the next step"
 */
private[binshift] final case class MigrationView(
    id: String, strategy: String, done: Int, total: Int, awaited: Long, waits: Option[String])

/**
 * The state and the load in one partition, over all operators of a query.
 *
 * @param keys `None`, like `bytes`, if Spark doesn't count rows
 */
private[binshift] final case class PartitionLoad(
    partition: Int, executors: Seq[String], bins: Int, keys: Option[Long], bytes: Option[Long],
    reads: Long, writes: Long)

/**
 * The latest steps that were committed.
 *
 * @param newest the epoch of the entry in force when they were read, and whether it was committed
 */
private[binshift] final case class StepHistory(newest: Option[(Long, Boolean)], steps: Seq[RoutingEntry]) {

  /** Returns this history if no step has been committed since, or else a new one. */
  def of(query: MicroBatchExecution): StepHistory = {
    val router = QueryRouters.of(query)
    val now = router.now.tables.current.map(e => (e.epoch, e.epoch <= CommittedEpoch.of(query)))
    if (now == newest) this
    else StepHistory(now, router.history(StepHistory.Shown).reverse.filter(_.step.exists(!_.isOpening)))
  }
}

private[binshift] object StepHistory {
  val Shown = 20
}

private[binshift] object QueryView {
  /** The view until the query has answered. */
  val Unknown: QueryView =
    QueryView(None, None, None, Nil, loadsOf = None, misplaced = 0, evacuated = 0, standbys = Map.empty, takenOver = 0,
      audit = None)

  def of(query: MicroBatchExecution): QueryView = {
    val router = QueryRouters.of(query)
    val s = router.snapshot()
    val migration = s.migration.map { m =>
      val outlook = router.scheduler.outlook(m)
      MigrationView(m.id, m.plan.strategy, s.tables.stepsCommitted(m.id, CommittedEpoch.of(query)),
        m.plan.steps.size, outlook.awaited.getOrElse(0), outlook.waits.map(_.text))
    }
    val statistics = QueryStatistics.of(query).snapshot()
    QueryView(s.planned, s.tables.current, migration, statistics.map(loads).getOrElse(Nil), statistics.map(_.epoch),
      router.relocation.misplaced, router.relocation.evacuated,
      router.standbys.fold(Map.empty[Int, Seq[StandbyView]])(_.views()), router.standbys.fold(0L)(_.takenOver), router.audits.all)
  }

  private def loads(s: StatisticsSnapshot): Seq[PartitionLoad] = {
    def sums(of: OperatorSnapshot => Array[Long]): Array[Long] = {
      val out = new Array[Long](s.table.partitions)
      s.operators.map(of).foreach { column =>
        column.indices.foreach(bin => out(s.table.owners(bin)) += column(bin))
      }
      out
    }
    val (keys, bytes, reads, writes) = (sums(_.keys), sums(_.bytes), sums(_.reads), sums(_.writes))
    val isSized = s.operators.forall(_.isSized)
    (0 until s.table.partitions).map { p =>
      PartitionLoad(p, s.operators.flatMap(_.executors(p)).distinct, s.table.sizes(p),
        Option.when(isSized)(keys(p)), Option.when(isSized)(bytes(p)), reads(p), writes(p))
    }
  }
}
