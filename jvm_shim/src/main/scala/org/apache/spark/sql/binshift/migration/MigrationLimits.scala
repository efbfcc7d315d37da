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
 * Called under the lock of the run.
 */
private[migration] final class MigrationLimits {
  /** The seconds of the epochs that took too long, by their numbers. */
  private var long = Map.empty[Long, Double]
  /** The last epoch that was looked at. */
  private var last = Option.empty[Long]
  /** The first epoch that counts: the one that was being planned when a step could first be decided. */
  private var first = Option.empty[Long]
  private var isLate = false

  /** Forgets what it has seen of another migration. */
  def begin(): Unit = {
    long = Map.empty
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
   * The reason for which `m` has to stop now, if there is one. Looks at the last epoch, too.
   *
   * @param next  the epoch for which a step is decided
   * @param ended the number and the milliseconds of the last epoch, if they are known
   * @param taken steps that are taken
   */
  def stopped(m: PlannedMigration, nowMs: Long, next: Long, ended: Option[(Long, Long)], taken: Int): Option[Stopped] = {
    val steps = s"$taken of ${m.plan.steps.size} steps"
    first = first.orElse(Some(next - 1))
    last = ended.map(_._1)
    for (g <- m.options.guard; (epoch, ms) <- ended if first.exists(_ <= epoch) && ms > g.longestMs) long += epoch -> ms / 1000.0
    val late = m.options.deadline.filter(d => d.onTimeout != Deadline.Finish && d.hasPassed(nowMs, next))
      .map(d => Stopped(s"its deadline of $d passed after $steps", d.onTimeout == Deadline.Rollback, taken))
    val slow = m.options.guard.filter(long.size >= _.epochs).map(g =>
      Stopped(
        s"${long.size} epochs took longer than the $g of its guard, up to ${f"${long.values.max}%.1f"} s, after $steps",
        rollsBack = true, taken))
    late.orElse(slow)
  }

  /** How long the last epoch took, in seconds, if that was longer than the guard allows. */
  def tooLong: Option[Double] = last.flatMap(long.get)
}
