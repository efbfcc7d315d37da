package org.apache.spark.sql.binshift.migration

import org.json4s.{DefaultFormats, Formats, JNothing, JNull, JValue}
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

/**
 * The time within which the last step of a migration has to be taken. It begins when the plan is accepted, and goes on while nobody
 * runs the query.
 *
 * @param amount    seconds or epochs
 * @param isEpochs  whether it is a number of epochs
 * @param onTimeout what happens then: `finish`, `keep` or `rollback`
 * @param due       the time in milliseconds since 1970, or the last epoch at which a step may take effect; `None` until the plan is
 *                  accepted
 */
private[binshift] final case class Deadline(
    amount: Double, isEpochs: Boolean, onTimeout: String, due: Option[Long] = None) {

  /** @param planned the epoch planned last */
  def begun(nowMs: Long, planned: Long): Deadline =
    copy(due = due.orElse(Some(if (isEpochs) planned + amount.toLong else nowMs + (amount * 1000).toLong)))

  /** @param next the epoch for which a step is decided */
  def hasPassed(nowMs: Long, next: Long): Boolean = due.exists(_ < (if (isEpochs) next else nowMs))

  override def toString: String = if (isEpochs) s"${amount.toLong} epochs" else s"${Deadline.number(amount)} s"

  def toJson: JValue = ((if (isEpochs) "epochs" else "seconds") -> amount) ~ ("due" -> due)
}

private[binshift] object Deadline {
  val Finish = "finish"
  val Keep = "keep"
  val Rollback = "rollback"

  /** @param options the options of a migration, as JSON */
  def fromJson(options: JValue): Option[Deadline] = options \ "deadline" match {
    case JNothing | JNull => None
    case json =>
      implicit val formats: Formats = DefaultFormats
      val (seconds, epochs) = ((json \ "seconds").extractOpt[Double], (json \ "epochs").extractOpt[Double])
      val onTimeout = (options \ "on_timeout").extractOpt[String].getOrElse(Finish)
      require(Set(Finish, Keep, Rollback)(onTimeout), s"on_timeout is $onTimeout, which is none of finish, keep and rollback")
      val amount = seconds.orElse(epochs).filter(_ > 0).getOrElse(
        throw new IllegalArgumentException("the deadline has neither a number of seconds nor one of epochs"))
      Some(Deadline(amount, isEpochs = seconds.isEmpty, onTimeout, (json \ "due").extractOpt[Long]))
  }

  private[migration] def number(value: Double): String = if (value.isWhole) value.toLong.toString else value.toString
}

/**
 * Watches how long epochs take while a migration is under way. After a longer one, no step is taken until one is short again.
 *
 * @param longestMs the longest that an epoch may take, in milliseconds
 * @param epochs    after so many longer ones, the migration is undone
 */
private[binshift] final case class EpochGuard(longestMs: Long, epochs: Int) {
  override def toString: String = s"${Deadline.number(longestMs / 1000.0)} s"

  def toJson: JValue = ("longest_epoch_s" -> longestMs / 1000.0) ~ ("epochs" -> epochs)
}

private[binshift] object EpochGuard {
  /** @param options the options of a migration, as JSON */
  def fromJson(options: JValue): Option[EpochGuard] = options \ "guard" match {
    case JNothing | JNull => None
    case json =>
      implicit val formats: Formats = DefaultFormats
      val guard = EpochGuard(((json \ "longest_epoch_s").extract[Double] * 1000).toLong, (json \ "epochs").extract[Int])
      require(guard.longestMs > 0 && guard.epochs > 0,
        s"a guard of ${guard.longestMs} ms and ${guard.epochs} epochs is impossible")
      Some(guard)
  }
}

/**
 * What a migration's deadline and guard have to say while an epoch is planned.
 *
 * Called under the router's lock.
 */
private[migration] final class MigrationLimits {
  private var long = Map.empty[Long, Double]
  /** The first epoch that counts: the one that was being planned when a step could first be decided. */
  private var first = Option.empty[Long]
  private var isLate = false

  /** Forgets what it has seen of another migration. */
  def begin(): Unit = {
    long = Map.empty
    first = None
    isLate = false
  }

  /** True once, when the deadline of `m` has passed and `m` is to go on all the same. */
  def isLateNow(m: PlannedMigration, nowMs: Long, next: Long): Boolean = {
    val was = isLate
    isLate = m.options.deadline.exists(d => d.onTimeout == Deadline.Finish && d.hasPassed(nowMs, next))
    isLate && !was
  }

  /**
   * The reason for which `m` has to stop now, if there is one.
   *
   * @param next    the epoch for which a step is decided
   * @param last    the number and the milliseconds of the last epoch, if they are known
   * @param isTaken whether all steps are taken
   */
  def stopped(m: PlannedMigration, nowMs: Long, next: Long, last: Option[(Long, Long)], taken: Int): Option[Stopped] = {
    val steps = s"$taken of ${m.plan.steps.size} steps"
    first = first.orElse(Some(next - 1))
    for (g <- m.options.guard; (epoch, ms) <- last if first.exists(_ <= epoch) && ms > g.longestMs) long += epoch -> ms / 1000.0
    val late = m.options.deadline.filter(d => d.onTimeout != Deadline.Finish && d.hasPassed(nowMs, next))
      .map(d => Stopped(s"its deadline of $d passed after $steps", d.onTimeout == Deadline.Rollback, taken))
    val slow = m.options.guard.filter(long.size >= _.epochs).map(g =>
      Stopped(
        s"${long.size} epochs took longer than the $g of its guard, up to ${f"${long.values.max}%.1f"} s, after $steps",
        rollsBack = true, taken))
    late.orElse(slow)
  }

  /** How long the last epoch took, in seconds, if that was longer than `m` allows. */
  def tooLong(m: PlannedMigration, last: Option[(Long, Long)]): Option[Double] =
    for (g <- m.options.guard; (epoch, ms) <- last if first.exists(_ <= epoch) && ms > g.longestMs) yield ms / 1000.0
}
