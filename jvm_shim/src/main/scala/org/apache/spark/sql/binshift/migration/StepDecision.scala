package org.apache.spark.sql.binshift.migration

import scala.annotation.tailrec

import org.apache.spark.sql.execution.streaming.state.binshift.routing.Delivery

/**
 * Decides what happens to the next step of a migration at one epoch. New partitions are opened first, empty, because bins can only
 * be sent to stores that exist. The ways of a step, by how its bins are delivered:
 *
 * {{{
 * copied ahead      open, ... open and order | order ─► wait for copies ─► take
 * on demand         open, ... open ─► take
 * with whole files  wait for the epoch ─► open, ... open ─► take
 * at the switch     take
 * }}}
 *
 * Pure: it knows epochs and numbers, but no class of Spark, no clock and no file. [[StepScheduler]] gathers the facts and acts.
 */
private[migration] object StepDecision {
  import Delivery._

  /** Epochs that a step waits for the checkpoint's answer. A query whose files can't be listed must still be able to change. */
  val MaxUnanswered = 10

  sealed trait Decision

  final case class Wait(reason: Reason) extends Decision

  /** @param orders whether copies are ordered at the same epoch, of the version with which the opened partitions begin */
  final case class Open(partitions: Int, orders: Boolean) extends Decision

  /** Orders the copies of the step's bins. */
  case object Order extends Decision

  /** @param delivery how bins come to their new owners; at the switch, if their copies have made no progress for too long */
  final case class Take(delivery: Delivery) extends Decision

  /** The step can't be taken, because it starts from another table than the one in force. */
  case object Abandon extends Decision

  def decide(f: StepFacts): Decision = f.early match {
    case Some(reason) => Wait(reason)
    case None if !f.fits => Abandon
    case None => f.obstacles.reason(f.step).fold(next(f))(Wait(_))
  }

  private def next(f: StepFacts): Decision = f.delivery match {
    case AtSwitch => f.onceDue(Take(AtSwitch))
    // Nothing is gained by opening them long before the step.
    case WholeFiles(_) if f.epoch + f.openings < f.notBefore => Wait(Reason.NotBefore(f.notBefore - f.openings))
    case _ if f.openings > 0 =>
      val partitions = math.min(f.partitions + f.openedAtOnce, f.wanted)
      // Copies may be ordered already, with those of the steps before, if the step moves nothing to new partitions.
      Open(partitions, orders = f.delivery == Ahead && partitions == f.wanted && !f.isOrdered)
    case OnDemand | WholeFiles(_) => f.onceDue(Take(f.delivery))
    case Ahead if !f.isOrdered => Order
    // The stores that receive the copies begin with the epoch that is being planned, so they haven't reported anything yet.
    case Ahead if f.isOpening && f.since == f.epoch - 1 => Wait(Reason.Opening)
    case Ahead => f.copies match {
        case None => Wait(Reason.Answer)
        case Some(c) if c.missing == 0 => f.onceDue(Take(Ahead))
        case Some(c) if c.idle < f.maxIdle || f.epoch < f.notBefore => Wait(Reason.Missing(c))
        case Some(_) => Take(AtSwitch)
      }
  }

  /** The earliest epoch at which the step can be taken. It is taken then if nothing is in its way and copies come at once. */
  def earliest(f: StepFacts): Long = first(f.unhindered)

  @tailrec private def first(f: StepFacts): Long = decide(f) match {
    case Open(n, orders) => first(f.after.copy(
          since = f.epoch, isOpening = true, partitions = n, isOrdered = f.isOrdered || orders, copies = None))
    case Order => first(f.after.copy(isOrdered = true, copies = None))
    case Wait(Reason.NotBefore(epoch)) => first(f.copy(epoch = epoch))
    case Wait(_) => first(f.after.unhindered)
    case Take(_) | Abandon => f.epoch
  }
}

/**
 * The prospects of a migration's next step, for those who watch it.
 *
 * @param earliest the epoch for which it is scheduled, or else the first at which it can take effect; `None` until the run has
 *                 planned an epoch
 * @param waits    the reason why it waits; `None` if it is taken or prepared as soon as possible
 * @param awaited  bins whose copies it waits for
 * @param givenUp  bins that could not be copied ahead, of this step and of the steps taken so far
 */
private[binshift] final case class Outlook(
    earliest: Option[Long], waits: Option[Reason], awaited: Option[Long], givenUp: Long)

/**
 * The facts by which the next step is decided, while the epoch before `epoch` is planned.
 *
 * @param step         index of the step
 * @param epoch        the epoch for which it is decided
 * @param since        the first epoch of the table in force
 * @param isOpening    whether that table only opened partitions
 * @param partitions   partitions of that table
 * @param wanted       partitions of the step's table
 * @param openedAtOnce how many an epoch may open
 * @param startEpoch   no step is taken before this epoch
 * @param gap          epochs that stay idle between two steps
 * @param isOrdered    whether copies for the step are ordered
 * @param copies       the state of the copies, as the tasks of the last epoch reported it; `None` if nobody asked them
 * @param maxIdle      after so many epochs without progress of its copies, the step is taken without them
 * @param fits         whether the table in force is the one that the step starts from
 * @param early        the reason why nothing may be decided yet in this run
 */
private[migration] final case class StepFacts(
    step: Int, epoch: Long, since: Long, isOpening: Boolean, partitions: Int, wanted: Int, openedAtOnce: Int,
    startEpoch: Long, gap: Int, delivery: Delivery, isOrdered: Boolean, copies: Option[CopyState], maxIdle: Int,
    fits: Boolean = true, early: Option[Reason] = None, obstacles: Obstacles = Obstacles()) {
  import StepDecision._

  /** The first epoch at which the user, or the gap between two steps, allows the step. */
  def notBefore: Long = if (step == 0) startEpoch else since + 1 + gap

  /** Epochs that it takes to open the new partitions. */
  def openings: Int = math.max(wanted - partitions + openedAtOnce - 1, 0) / openedAtOnce

  private[migration] def onceDue(decision: Decision): Decision =
    if (epoch < notBefore) Wait(Reason.NotBefore(notBefore)) else decision

  private[migration] def after: StepFacts = copy(epoch = epoch + 1)

  /** The same facts, but with the number of epochs without progress of the copies; `before` was decided an epoch earlier. */
  def following(before: Option[Decision]): StepFacts = {
    val awaited = before.collect { case Wait(Reason.Missing(of)) => of }
    copy(copies = copies.map(c => c.copy(idle = awaited.filter(_.bytes == c.bytes).fold(0)(_.idle + 1))))
  }

  /** The same facts as if nothing were in the way and all copies that are ordered had arrived. */
  private[migration] def unhindered: StepFacts = copy(
    obstacles = Obstacles(), fits = true, early = None,
    copies = Option.when(isOrdered)(CopyState()))
}

/**
 * How far the copies of a step have come.
 *
 * @param missing  bins without a copy, summed over their stores
 * @param givenUp  bins that will get no copy
 * @param bytes    bytes copied so far, for all steps
 * @param idle     for how many epochs the step has waited without progress
 * @param awaiting partitions that wait for copies, with their executors, as far as they are known
 */
private[migration] final case class CopyState(
    missing: Long = 0, total: Long = 0, givenUp: Long = 0, bytes: Long = 0, idle: Int = 0, awaiting: Seq[(Int, String)] = Nil)

/**
 * Obstacles outside of the step that may keep it waiting.
 *
 * @param isDeleting whether old state of one of the step's partitions is still being deleted
 * @param isFetching whether bins of the step before are still on their way
 * @param misplaced  partitions that must move to another executor first, so that bins are copied to where they stay
 * @param noRoom     why a plan that fitted when it was accepted no longer does, because executors have gone
 * @param lost       files that the checkpoint lacks, so that bins couldn't be rebuilt
 * @param unanswered for how many epochs the checkpoint hasn't answered whether files are missing
 * @param tooLong    the seconds that the last epoch took, if the migration's guard doesn't allow that
 */
private[migration] final case class Obstacles(
    isDeleting: Boolean = false, isFetching: Boolean = false, misplaced: Int = 0, noRoom: Option[String] = None,
    lost: Option[String] = None, unanswered: Int = 0, tooLong: Option[Double] = None) {

  private[migration] def reason(step: Int): Option[Reason] =
    if (isDeleting) Some(Reason.Deletion)
    else if (isFetching) Some(Reason.OnTheWay)
    else if (misplaced > 0) Some(Reason.Misplaced(misplaced))
    else if (tooLong.nonEmpty) tooLong.map(Reason.TooLong)
    else noRoom.orElse(lost).map(Reason.Trouble)
      .orElse(Option.when(0 < unanswered && unanswered <= StepDecision.MaxUnanswered)(Reason.Trouble(
            s"the driver still checks whether the bins of step ${step + 1} could be rebuilt from the checkpoint")))
}

/**
 * A reason why a step waits.
 *
 * @param text      the reason as the rest of a sentence that begins with "the next step"
 * @param isTrouble whether somebody may have to do something about it
 */
private[binshift] sealed abstract class Reason(val text: String, val isTrouble: Boolean = false)

private[binshift] object Reason {
  case object RunAgain extends Reason("waits until the epoch that an earlier run has begun is over")
  case object Deletion extends Reason("waits until the old state of its partitions is deleted")
  case object OnTheWay extends Reason("waits for bins of the step before, which are still on their way")
  case object Opening extends Reason("waits until its new partitions are opened")
  case object Answer extends Reason("waits until tasks have reported whether its copies have arrived")
  final case class Takeover(epoch: Long)
    extends Reason(s"waits until epoch $epoch has taken the state over from Spark's provider")
  final case class NotBefore(epoch: Long) extends Reason(s"waits for epoch $epoch")
  final case class Misplaced(partitions: Int) extends Reason(
      if (partitions == 1) "waits for 1 partition to run on another executor"
      else s"waits for $partitions partitions to run on other executors")
  final case class TooLong(seconds: Double) extends Reason(
      f"waits for a shorter epoch, as the last one took $seconds%.1f s and its guard doesn't allow that")
  final case class Trouble(what: String) extends Reason(s"waits: $what", isTrouble = true)

  final case class Missing(of: CopyState)
    extends Reason(s"waits for ${of.missing} of ${math.max(of.total, of.missing)} copies${places(of.awaiting)}")

  /**
   * The reason why nothing may be decided for `epoch` yet, if there is one.
   *
   * @param isAgain     whether an earlier run has logged the epoch before. That run may be alive, and may have decided already.
   * @param takenOverAt the epoch that takes the state over from Spark's provider; it needs each partition where Spark has left it
   */
  def early(epoch: Long, isAgain: Boolean, takenOverAt: Option[Long]): Option[Reason] =
    if (isAgain) Some(RunAgain) else takenOverAt.filter(epoch <= _).map(Takeover)

  private def places(awaiting: Seq[(Int, String)]): String =
    if (awaiting.isEmpty) ""
    else awaiting.groupMap(_._2)(_._1).toSeq.sortBy(_._2.min).map { case (executor, partitions) =>
      s"${listed(partitions.sorted)} on executor $executor"
    }.mkString(", of ", " and ", "")

  private def listed(partitions: Seq[Int]): String = partitions match {
    case Seq(one) => s"partition $one"
    case some if some.size <= MaxListed => s"partitions ${some.init.mkString(", ")} and ${some.last}"
    case many => s"${many.size} partitions"
  }

  private val MaxListed = 6
}
