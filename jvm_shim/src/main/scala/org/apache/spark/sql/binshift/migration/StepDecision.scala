package org.apache.spark.sql.binshift.migration

import scala.annotation.tailrec

import org.apache.spark.sql.execution.streaming.state.binshift.routing.Delivery

/**
 * Decides what becomes of the next step of a migration at one epoch. Partitions that are new are opened, empty, because bins are sent to
 * stores that are there:
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

  /** A query whose files cannot be listed must not be kept from changing for ever. */
  val MaxUnanswered = 10

  sealed trait Decision

  final case class Wait(reason: Reason) extends Decision

  /** @param orders whether copies are ordered as well, of the version with which the opened partitions begin */
  final case class Open(partitions: Int, orders: Boolean) extends Decision

  /** Have the bins copied. */
  case object Order extends Decision

  /** @param delivery how bins come to their new owners; at the switch, if nothing has come of their copies for too long */
  final case class Take(delivery: Delivery) extends Decision

  /** The table in force isn't the one that the step starts from. */
  case object Abandon extends Decision

  def decide(f: StepFacts): Decision = f.early match {
    case Some(reason) => Wait(reason)
    case None if !f.fits => Abandon
    case None => f.obstacles.reason(f.step).fold(next(f))(Wait(_))
  }

  private def next(f: StepFacts): Decision = f.delivery match {
    case AtSwitch => f.onceDue(Take(AtSwitch))
    // Opening them isn't worth an epoch long before the step.
    case WholeFiles(_) if f.epoch + f.openings < f.notBefore => Wait(Reason.NotBefore(f.notBefore - f.openings))
    case _ if f.openings > 0 =>
      val partitions = math.min(f.partitions + f.openedAtOnce, f.wanted)
      // Copies may be ordered already: those of a step that moves nothing to new partitions, with the steps before it.
      Open(partitions, orders = f.delivery == Ahead && partitions == f.wanted && !f.isOrdered)
    case OnDemand | WholeFiles(_) => f.onceDue(Take(f.delivery))
    case Ahead if !f.isOrdered => Order
    // The stores that get the copies exist from the epoch that is being planned, so they have said nothing yet.
    case Ahead if f.isOpening && f.since == f.epoch - 1 => Wait(Reason.Opening)
    case Ahead => f.copies match {
        case None => Wait(Reason.Answer)
        case Some(c) if c.missing == 0 => f.onceDue(Take(Ahead))
        case Some(c) if c.idle < f.maxIdle || f.epoch < f.notBefore => Wait(Reason.Missing(c))
        case Some(_) => Take(AtSwitch)
      }
  }

  /** The epoch before which the step cannot be taken: it will be taken then if nothing is in its way, and copies come at once. */
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
 * What can be said of the next step of a migration.
 *
 * @param earliest the epoch for which it is scheduled, or before which it cannot take effect, once the run has planned an epoch
 * @param waits    what it waits for; `None` if it will be taken, or prepared, as soon as it can
 * @param awaited  bins whose copies it waits for
 * @param givenUp  bins that could not be copied ahead: of steps taken so far, and of this one
 */
private[binshift] final case class Outlook(
    earliest: Option[Long], waits: Option[Reason], awaited: Option[Long], givenUp: Long)

/**
 * What is known of the next step while the epoch before `epoch` is planned.
 *
 * @param step         its index
 * @param epoch        the epoch that is decided
 * @param since        the first epoch of the table in force
 * @param isOpening    whether that table only opened partitions
 * @param partitions   partitions of that table
 * @param wanted       partitions of the step's table
 * @param openedAtOnce how many an epoch may open
 * @param startEpoch   before which no step is taken
 * @param gap          epochs that stay idle between two steps
 * @param isOrdered    whether copies for the step are ordered
 * @param copies       what the tasks of the last epoch said of copies; `None` if nobody asked them
 * @param maxIdle      epochs in which nothing comes of the copies, after which the step is taken without them
 * @param fits         whether the table in force is the one that the step starts from
 * @param early        why nothing may be decided yet in this run
 */
private[migration] final case class StepFacts(
    step: Int, epoch: Long, since: Long, isOpening: Boolean, partitions: Int, wanted: Int, openedAtOnce: Int,
    startEpoch: Long, gap: Int, delivery: Delivery, isOrdered: Boolean, copies: Option[CopyState], maxIdle: Int,
    fits: Boolean = true, early: Option[Reason] = None, obstacles: Obstacles = Obstacles()) {
  import StepDecision._

  /** What the user, or the gap between two steps, wants. */
  def notBefore: Long = if (step == 0) startEpoch else since + 1 + gap

  /** Epochs that it takes to open the new partitions. */
  def openings: Int = math.max(wanted - partitions + openedAtOnce - 1, 0) / openedAtOnce

  private[migration] def onceDue(decision: Decision): Decision =
    if (epoch < notBefore) Wait(Reason.NotBefore(notBefore)) else decision

  private[migration] def after: StepFacts = copy(epoch = epoch + 1)

  /** The same, with for how many epochs the step has waited for copies of which nothing came, if `before` was decided an epoch earlier. */
  def following(before: Option[Decision]): StepFacts = {
    val awaited = before.collect { case Wait(Reason.Missing(of)) => of }
    copy(copies = copies.map(c => c.copy(idle = awaited.filter(_.bytes == c.bytes).fold(0)(_.idle + 1))))
  }

  /** The same if nothing is in the way, and copies that are ordered are there. */
  private[migration] def unhindered: StepFacts = copy(
    obstacles = Obstacles(), fits = true, early = None,
    copies = Option.when(isOrdered)(CopyState()))
}

/**
 * The copies of a step.
 *
 * @param missing  bins without a copy, summed over their stores
 * @param givenUp  bins of which there will be no copy
 * @param bytes    copied so far, for all steps
 * @param idle     for how many epochs the step has waited for them, and nothing has come
 * @param awaiting partitions that wait for some, with their executors, as far as they are known
 */
private[migration] final case class CopyState(
    missing: Long = 0, total: Long = 0, givenUp: Long = 0, bytes: Long = 0, idle: Int = 0, awaiting: Seq[(Int, String)] = Nil)

/**
 * What keeps a step waiting that it doesn't do itself.
 *
 * @param isDeleting whether old state of a partition that the step has is being deleted
 * @param isFetching whether bins of the step before are still on their way
 * @param misplaced  partitions that are to run on another executor first, so that bins are copied to where they stay
 * @param noRoom     why a plan that fitted when it was accepted doesn't now, as executors have gone
 * @param lost       what is missing in the checkpoint to rebuild bins from
 * @param unanswered for how many epochs the checkpoint hasn't said whether something is
 */
private[migration] final case class Obstacles(
    isDeleting: Boolean = false, isFetching: Boolean = false, misplaced: Int = 0, noRoom: Option[String] = None,
    lost: Option[String] = None, unanswered: Int = 0) {

  private[migration] def reason(step: Int): Option[Reason] =
    if (isDeleting) Some(Reason.Deletion)
    else if (isFetching) Some(Reason.OnTheWay)
    else if (misplaced > 0) Some(Reason.Misplaced(misplaced))
    else noRoom.orElse(lost).map(Reason.Trouble)
      .orElse(Option.when(0 < unanswered && unanswered <= StepDecision.MaxUnanswered)(Reason.Trouble(
            s"it is being looked whether the checkpoint has all that the bins of step ${step + 1} could be rebuilt from")))
}

/**
 * What a step waits for.
 *
 * @param text      goes on after "the next step"
 * @param isTrouble whether somebody may have to see to it
 */
private[binshift] sealed abstract class Reason(val text: String, val isTrouble: Boolean = false)

private[binshift] object Reason {
  case object RunAgain extends Reason("waits until the epoch is over that an earlier run has begun")
  case object Deletion extends Reason("waits until the old state of its partitions is deleted")
  case object OnTheWay extends Reason("waits for bins of the step before, which are still on their way")
  case object Opening extends Reason("waits until its new partitions are opened")
  case object Answer extends Reason("waits until tasks have said whether its copies are there")
  final case class Takeover(epoch: Long)
    extends Reason(s"waits until epoch $epoch has taken the state over from Spark's provider")
  final case class NotBefore(epoch: Long) extends Reason(s"waits for epoch $epoch")
  final case class Misplaced(partitions: Int) extends Reason(
      if (partitions == 1) "waits for 1 partition to run on another executor"
      else s"waits for $partitions partitions to run on other executors")
  final case class Trouble(what: String) extends Reason(s"waits: $what", isTrouble = true)

  final case class Missing(of: CopyState)
    extends Reason(s"waits for ${of.missing} of ${math.max(of.total, of.missing)} copies${places(of.awaiting)}")

  /**
   * Why nothing may be decided for `epoch`.
   *
   * @param isAgain     whether the epoch before was logged by an earlier run, which may be alive, and have decided
   * @param takenOverAt the epoch that takes the state over from Spark's provider, and reads each partition where that has left it
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
