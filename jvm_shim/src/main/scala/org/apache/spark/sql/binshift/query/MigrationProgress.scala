package org.apache.spark.sql.binshift.query

import org.json4s.JObject
import org.json4s.JsonDSL._

import org.apache.spark.sql.binshift.internals.CommittedEpoch
import org.apache.spark.sql.binshift.migration.{AuditView, CopyForecast, Reason, Rollback, Stopped}
import org.apache.spark.sql.execution.streaming.state.binshift.BinshiftException

/**
 * The progress of a migration.
 *
 * @param state          the name of one of Python's `MigrationState`s
 * @param stepsDone      steps whose epochs are committed
 * @param scheduledEpoch the epoch of a step that is durable and not committed yet
 * @param earliestEpoch  the first epoch at which the next step can take effect
 * @param committedEpoch newest committed epoch of the query, -1 before the first
 * @param awaited        bins whose copies the next step waits for
 * @param givenUp        bins that could not be copied ahead
 * @param audit          the results of its steps' audits; `None` if this run has taken no step that is audited
 * @param misplaced      partitions that should run on another executor than they do
 * @param waits          what the next step waits for
 * @param notCopied      why no bins are copied ahead, although they should be
 * @param stopped        why it has stopped, if its deadline, its guard or a request to undo it was the reason
 * @param rollbackId     the migration that undoes it, or has undone it
 */
private[binshift] final case class MigrationProgress(
    state: String, stepsDone: Int, committedEpoch: Long, scheduledEpoch: Option[Long] = None,
    earliestEpoch: Option[Long] = None, awaited: Option[Long] = None, givenUp: Option[Long] = None,
    misplaced: Option[Int] = None, forecast: Option[CopyForecast] = None, waits: Option[Reason] = None,
    audit: Option[AuditView] = None, notCopied: Option[String] = None, stopped: Option[Stopped] = None,
    rollbackId: Option[String] = None) {

  def toJson: JObject = ("state" -> state) ~ ("steps_done" -> stepsDone) ~ ("scheduled_epoch" -> scheduledEpoch) ~
    ("earliest_epoch" -> earliestEpoch) ~ ("committed_epoch" -> committedEpoch) ~ ("bins_awaited" -> awaited) ~
    ("forecast" -> forecast.map(_.toJson)) ~ ("bins_given_up" -> givenUp) ~ ("misplaced" -> misplaced) ~
    ("waits" -> waits.map(_.text)) ~ ("audit" -> audit.map(_.toJson)) ~ ("not_copied" -> notCopied) ~
    ("undone" -> stopped.filter(_.rollsBack && state.startsWith("roll")).map(_.why)) ~
    ("ended_because" -> stopped.filterNot(_.rollsBack).map(_.why)) ~ ("rollback_id" -> rollbackId) ~
    // Deprecated: gone in 0.2.
    ("waits_because" -> waits.collect { case Reason.Trouble(what) => what })
}

private[binshift] object MigrationProgress {

  /**
   * May be called from any thread. Once the run has committed an epoch, the checkpoint is read only for a migration that the run
   * has forgotten, or that ended in an earlier run.
   *
   * @throws BinshiftException if no such migration is known
   */
  def of(router: QueryRouter, id: String): MigrationProgress = find(router, id).getOrElse(
    throw BinshiftException("NO_MIGRATION", "migration_id" -> id).migration(
      s"query ${router.query.id} knows no migration $id, and its routing log has no step of it any more; the query's history shows " +
        "the steps of other migrations, and its routing table where the bins are now"))

  /** `None` if no such migration is known. */
  def find(router: QueryRouter, id: String): Option[MigrationProgress] = {
    val s = router.snapshot()
    // An accepted migration is one of these until it is over, even if an earlier run accepted it.
    if (s.outcomes.exists(_.id == id) || s.migration.exists(_.id == id)) Some(known(router, s, id))
    else {
      val undo = Rollback.idOf(id)
      val steps = router.historyOf(id, undo).flatMap(_.step)
      def end(of: String, whole: String) =
        steps.filter(_.migration == of).lastOption.map(last => if (last.index + 1 == last.steps) whole else "cancelled")
      val undone = undoing(router, s, id).orElse(end(undo, "rolled-back"))
      end(id, "finished").map { state =>
        MigrationProgress(undone.getOrElse(state), steps.filter(_.migration == id).last.index + 1,
          CommittedEpoch.of(router.query),
          audit = router.audits.ofMigration(id), rollbackId = undone.map(_ => undo))
      }
    }
  }

  /** How far the migration that undoes migration `id` has come, as a state of the latter; `None` if this run knows of none. */
  private def undoing(router: QueryRouter, s: RouterSnapshot, id: String): Option[String] = {
    val undo = Rollback.idOf(id)
    Option.when(s.outcomes.exists(_.id == undo) || s.migration.exists(_.id == undo))(known(router, s, undo).state match {
      case "finished" => "rolled-back"
      case over @ ("cancelled" | "stopped") => over
      case _ => "rolling-back"
    })
  }

  private def known(router: QueryRouter, s: RouterSnapshot, id: String): MigrationProgress = {
    val query = router.query
    val committed = CommittedEpoch.of(query)
    val mine = s.migration.filter(_.id == id)
    // A rollback that was cancelled may be asked for again.
    val outcome = s.outcomes.find(_.id == id).filter(_ => mine.isEmpty)
    val outlook = mine.map(router.scheduler.outlook)
    val awaited = outlook.flatMap(_.awaited)
    // This doesn't use `isTriggerActive`, which is also true while Spark looks for data and finds none.
    def isIdle = s.planned.forall(_ <= committed) && !query.status.isDataAvailable
    val undo = if (outcome.isDefined) undoing(router, s, id) else None
    // One that had finished by itself is only undone by hand.
    val stopped = mine.flatMap(_.stopped).orElse(outcome.flatMap(_.stopped)).orElse(undo.map(_ => Stopped.asked(0)))
    val state =
      if (undo.isDefined) undo.get
      // It had done nothing that could be undone.
      else if (outcome.exists(_.stopped.exists(_.rollsBack))) "rolled-back"
      else if (mine.exists(_.rollsBack)) if (query.isActive) "rolling-back" else "stopped"
      else if (outcome.isDefined || mine.exists(router.scheduler.isOver)) {
        if (outcome.exists(_.cancelled) || mine.exists(router.scheduler.isCancelled)) "cancelled" else "finished"
      } else if (!query.isActive) "stopped"
      else if (isIdle) "waiting"
      else if (awaited.isDefined) "preparing"
      else "running"
    MigrationProgress(
      state = state,
      stepsDone = outcome.map(_.steps).getOrElse(s.tables.stepsCommitted(id, committed)),
      scheduledEpoch = s.tables.newestOf(id).filter(_ > committed),
      earliestEpoch = outlook.flatMap(_.earliest),
      committedEpoch = committed,
      awaited = awaited,
      givenUp = outlook.map(_.givenUp),
      misplaced = mine.map(_ => router.relocation.misplaced),
      forecast = router.scheduler.forecast(id),
      waits = outlook.flatMap(_.waits),
      audit = router.audits.ofMigration(id),
      notCopied = mine.flatMap(router.deliveries.whyNotCopied),
      stopped = stopped,
      rollbackId = undo.map(_ => Rollback.idOf(id)))
  }
}
