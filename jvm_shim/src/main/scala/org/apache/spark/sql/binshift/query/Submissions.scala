package org.apache.spark.sql.binshift.query

import scala.util.control.NonFatal

import org.apache.spark.sql.binshift.migration.{PlannedMigration, Rollback}
import org.apache.spark.sql.execution.streaming.state.binshift.BinshiftException

/**
 * Handles calls of clients that may repeat a call because they didn't get the answer. Clients choose the id of a migration, so submitting
 * or cancelling twice has the same effect as once.
 *
 * May be called from any thread.
 */
private[binshift] final class Submissions(router: QueryRouter) {
  import Submissions._

  /**
   * Accepts a plan, unless it was accepted under the same id before.
   *
   * @param outlivesDriver whether an earlier run of the query may have accepted it. If so, the routing log is read to find out.
   */
  def submit(id: String, plan: String, options: String, outlivesDriver: Boolean): Unit = {
    if (!isKnown(id) && !(outlivesDriver && router.history(EntriesLookedAt).exists(_.step.exists(_.migration == id)))) {
      try PlannedMigration.create(id, plan, options, "")
      catch {
        case e: BinshiftException => throw e
        case NonFatal(e) => throw BinshiftException("PLAN_UNREADABLE").plan(
            s"the plan or the options of request $id cannot be read (${e.getMessage}); make the plan with " +
              "binshift")
      }
      unlessOvertaken(isKnown(id))(router.submit(plan, options, id): Unit)
    }
  }

  /**
   * Undoes a migration, by default the one under way, or else the one that took the newest step; returns its id. Undoing twice has the
   * same effect as once.
   */
  def rollBack(migration: Option[String]): String = {
    val s = router.snapshot()
    def newest = s.migration.map(_.id).orElse(s.tables.current.flatMap(_.step).map(_.migration))
    val id = migration.orElse(newest.map(Rollback.undoneBy)).getOrElse(
      throw BinshiftException("NO_MIGRATION").migration(
        s"query ${router.query.id} has no migration under way, and its table comes from none; there is nothing to roll back"))
    val undo = Rollback.idOf(id)
    def isUnderWay = router.snapshot().migration.exists(_.id == undo)
    // One that was cancelled before its first step may be asked for again.
    val isDone = s.outcomes.exists(o => o.id == undo && !o.cancelled) ||
      s.tables.current.flatMap(_.step).exists(step => step.migration == undo && step.index + 1 == step.steps)
    if (!isUnderWay && !isDone) unlessOvertaken(isUnderWay)(router.rollBack(id))
    id
  }

  /** Makes a call. If it came in twice, and the other one was faster, its effect is there already. */
  private def unlessOvertaken(isThere: => Boolean)(call: => Unit): Unit =
    try call
    catch { case e: BinshiftException if e.condition == "MIGRATION_UNDER_WAY" && isThere => }

  private def isKnown(id: String): Boolean = {
    val s = router.snapshot()
    s.migration.exists(_.id == id) || s.outcomes.exists(_.id == id) || s.tables.newestOf(id).isDefined
  }

  /**
   * Cancels a migration, by default the one under way; returns its id. A finished migration can't be cancelled. If it is being rolled
   * back, the rollback is cancelled.
   */
  def cancel(migration: Option[String]): String = {
    val underWay = router.snapshot().migration.map(_.id)
    val id = underWay.filter(u => migration.forall(Rollback.idOf(_) == u)).orElse(migration).getOrElse(
      throw BinshiftException("NO_MIGRATION").migration(
        s"query ${router.query.id} has no migration under way; there is nothing to cancel"))
    router.cancel(id)
    // Looks at the present state, because the migration may have finished before the call arrived.
    val s = router.snapshot()
    def none(why: String) = throw BinshiftException("NO_MIGRATION", "migration_id" -> id).migration(why)
    if (!s.migration.exists(_.id == id)) s.outcomes.find(_.id == id) match {
      case None => none(s"query ${router.query.id} has no migration $id; under way is ${s.migration.map(_.id).getOrElse("none")}")
      case Some(o) if !o.cancelled =>
        none(
          s"migration $id of query ${router.query.id} has finished, and all that it moves has moved; there is nothing to cancel")
      case _ =>
    }
    id
  }
}

private object Submissions {
  /** A plan from before so many entries doesn't fit the table in force, unless that table has come back. */
  private val EntriesLookedAt = 32
}
