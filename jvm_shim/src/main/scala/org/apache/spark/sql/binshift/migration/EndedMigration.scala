package org.apache.spark.sql.binshift.migration

import org.apache.spark.sql.binshift.routing.RoutingEntries
import org.apache.spark.sql.execution.streaming.state.binshift.BinshiftException
import org.apache.spark.sql.execution.streaming.state.binshift.routing.RoutingEntry

/** A migration that is over, and has left nothing but its entries in the routing log. */
private[binshift] final class EndedMigration(query: String, id: String, entries: RoutingEntries) {
  import EndedMigration._

  /**
   * The plan that takes its steps back. Makes requests to the checkpoint.
   *
   * @param now the entry in force
   * @throws BinshiftException if it isn't the migration that has changed the table last, or its entries are no longer kept
   */
  def back(now: RoutingEntry): MigrationPlan = {
    val last = now.step.filter(_.migration == id).getOrElse(throw impossible(now.step.fold(
          "no step has changed the table")(s =>
          s"the table has changed since, at epoch ${now.epoch}, by migration ${s.migration}")))
    val own = entries.upTo(now, last.index + MaxOpenings).takeWhile(_.step.exists(_.migration == id)).reverse
    val before = own.head.previous.flatMap(entries.read).filterNot(_.step.exists(_.migration == id)).getOrElse(
      throw impossible("the routing log no longer has the table from before its first step"))
    val tables = own.filterNot(_.step.exists(_.isOpening)).map(_.table)
    val taken = (before.table +: tables).zip(tables).map { case (from, to) => Rollback.stepBetween(from, to) }
    MigrationPlan(now.table, Rollback.steps(before.table.partitions, taken, now.table.partitions), last.strategy, gap = 0,
      isOnDemand = last.strategy == Rollback.OnDemand)
  }

  def impossible(why: String): BinshiftException = BinshiftException("ROLLBACK_IMPOSSIBLE", "migration_id" -> id).migration(
    s"migration $id of query $query cannot be rolled back: $why; plan a rescale to the table that you want instead")
}

private object EndedMigration {
  /** A migration has fewer entries that only opened partitions. */
  private val MaxOpenings = 64
}
