package org.apache.spark.sql.binshift.migration

import org.json4s.{DefaultFormats, Formats, JNothing, JNull, JValue}
import org.json4s.JsonDSL._

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
 * @param long      the longer ones so far, by their numbers, in milliseconds
 */
private[binshift] final case class EpochGuard(longestMs: Long, epochs: Int, long: Map[Long, Long] = Map.empty) {
  override def toString: String = s"${Deadline.number(longestMs / 1000.0)} s"

  def toJson: JValue = ("longest_epoch_s" -> longestMs / 1000.0) ~ ("epochs" -> epochs) ~
    ("long" -> Some(long).filter(_.nonEmpty).map(_.map { case (epoch, ms) => epoch.toString -> ms }))
}

private[binshift] object EpochGuard {
  /** @param options the options of a migration, as JSON */
  def fromJson(options: JValue): Option[EpochGuard] = options \ "guard" match {
    case JNothing | JNull => None
    case json =>
      implicit val formats: Formats = DefaultFormats
      val guard = EpochGuard(((json \ "longest_epoch_s").extract[Double] * 1000).toLong, (json \ "epochs").extract[Int],
        (json \ "long").extractOpt[Map[String, Long]].getOrElse(Map.empty).map { case (epoch, ms) => epoch.toLong -> ms })
      require(guard.longestMs > 0 && guard.epochs > 0,
        s"a guard of ${guard.longestMs} ms and ${guard.epochs} epochs is impossible")
      Some(guard)
  }
}

/**
 * What a migration's deadline and guard have to say while an epoch is planned.
 *
 * Called under the lock of the run.
 */
private[migration] final class MigrationLimits {
  /** The last epoch that was looked at. */
  private var last = Option.empty[Long]
  /** The first epoch that counts. */
  private var first = Option.empty[Long]
  private var isLate = false

  /** Forgets what it has seen of another migration. */
  def begin(): Unit = {
    last = None
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
   * `m` with the last epoch, if that took too long for its guard; else `m` itself. The first epoch of a run loads all state, and doesn't
   * count. Nor do those that were planned before `m` was accepted.
   *
   * @param planned the epoch that is being planned
   * @param isFirst whether it is the first one of this run
   * @param ended   the number and the milliseconds of the last epoch, if they are known
   */
  def withLast(m: PlannedMigration, planned: Long, isFirst: Boolean, ended: Option[(Long, Long)]): PlannedMigration = {
    first = first.orElse(Some(if (isFirst) planned + 1 else planned))
    last = ended.map(_._1)
    val seen = for {
      g <- m.options.guard
      (epoch, ms) <- ended if first.exists(_ <= epoch) && ms > g.longestMs && !g.long.contains(epoch)
    } yield m.copy(options = m.options.copy(guard = Some(g.copy(long = g.long + (epoch -> ms)))))
    seen.getOrElse(m)
  }

  /**
   * The reason for which `m` has to stop now, if there is one.
   *
   * @param next  the epoch for which a step is decided
   * @param taken steps that are taken
   */
  def stopped(m: PlannedMigration, nowMs: Long, next: Long, taken: Int): Option[Stopped] = {
    val steps = s"$taken of ${m.plan.steps.size} steps"
    val late = m.options.deadline.filter(d => d.onTimeout != Deadline.Finish && d.hasPassed(nowMs, next))
      .map(d => Stopped(s"its deadline of $d passed after $steps", d.onTimeout == Deadline.Rollback, taken))
    val slow = m.options.guard.filter(g => g.long.size >= g.epochs).map(g =>
      Stopped(
        s"${g.long.size} epochs took longer than the $g of its guard, up to ${f"${g.long.values.max / 1000.0}%.1f"} s, after $steps",
        rollsBack = true, taken))
    late.orElse(slow)
  }

  /** How long the last epoch took, in seconds, if that was longer than the guard of `m` allows. */
  def tooLong(m: PlannedMigration): Option[Double] = for {
    epoch <- last
    g <- m.options.guard
    ms <- g.long.get(epoch)
  } yield ms / 1000.0
}
