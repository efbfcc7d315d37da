package org.apache.spark.sql.binshift.migration

import org.json4s.{DefaultFormats, Formats, JValue}
import org.json4s.JsonDSL._

import org.apache.spark.sql.execution.streaming.state.binshift.routing.{Move, RoutingEntry, RoutingTable}

/**
 * Undoes a migration by another one, which takes the same steps back, the last one first. To the rest of the driver, it is a migration
 * like any other.
 */
private[binshift] object Rollback {
  /** The name of the strategy on demand, which the routing log has for each of its steps. */
  val OnDemand = "on-demand"
  private val Suffix = "-rollback"

  /** The id of the migration that undoes `migration`. A client that has lost sight of one finds it by the other. */
  def idOf(migration: String): String = migration + Suffix

  /** True if the migration undoes another one. */
  def is(migration: String): Boolean = migration.endsWith(Suffix)

  /** The migration that `migration` undoes, or else this one. */
  def undoneBy(migration: String): String = migration.stripSuffix(Suffix)

  /**
   * The steps that lead back.
   *
   * @param source partitions before the first step
   * @param taken  the steps that were taken
   * @param now    partitions now, which may have been opened for the next step
   */
  def steps(source: Int, taken: Seq[Step], now: Int): IndexedSeq[Step] =
    if (taken.isEmpty) IndexedSeq(Step(source, Nil)).filter(_.partitions != now)
    else taken.zip(source +: taken.map(_.partitions)).reverse.map { case (step, before) =>
      Step(before, step.moves.map(m => Move(m.bin, m.target, m.source)))
    }.toIndexedSeq

  /** The step that leads from one table to the next. */
  def stepBetween(from: RoutingTable, to: RoutingTable): Step = Step(to.partitions,
    from.assignment.indices.collect {
      case bin if from.assignment(bin) != to.assignment(bin) => Move(bin, from.assignment(bin), to.assignment(bin))
    })

  /**
   * The migration that undoes what `m` has done; `None` if the table in force isn't the one to which its steps have led, for example
   * because the checkpoint was wound back. It has no steps if there is nothing to undo.
   *
   * @param taken steps that were taken
   */
  def of(m: PlannedMigration, taken: Int, now: RoutingEntry): Option[PlannedMigration] = {
    val done = m.plan.steps.take(taken)
    val owners = m.plan.source.assignment.toArray
    for (step <- done; move <- step.moves) owners(move.bin) = move.target
    Option.when(now.table.assignment == owners.toSeq) {
      val back = m.plan.copy(source = now.table, steps = steps(m.plan.source.partitions, done, now.table.partitions))
      m.copy(id = idOf(m.id), plan = back, json = back.toJson(now.epoch),
        options = MigrationOptions(isPrepared = m.options.isPrepared), cancelled = false, stopped = None,
        file = PlannedMigration.fileOf(idOf(m.id)), from = Some(now.name.render))
    }
  }
}

/**
 * Why a migration takes no further step, unless a client has cancelled it.
 *
 * @param why       as a clause, for people
 * @param rollsBack whether the steps that it has taken are undone
 * @param taken     steps that were taken, or durable, at that time. If a later run has taken more, the note comes from a run that had
 *                  been replaced, and doesn't count.
 */
private[binshift] final case class Stopped(why: String, rollsBack: Boolean, taken: Int) {
  def toJson: JValue = ("why" -> why) ~ ("rolls_back" -> rollsBack) ~ ("taken" -> taken)
}

private[binshift] object Stopped {
  /** To be undone, by hand. */
  def asked(taken: Int): Stopped = Stopped("somebody asked for it", rollsBack = true, taken)

  def fromJson(json: JValue): Option[Stopped] = {
    implicit val formats: Formats = DefaultFormats
    (json \ "why").extractOpt[String].map(Stopped(_, (json \ "rolls_back").extract[Boolean], (json \ "taken").extract[Int]))
  }
}
