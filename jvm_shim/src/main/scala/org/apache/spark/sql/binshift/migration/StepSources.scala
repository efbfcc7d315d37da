package org.apache.spark.sql.binshift.migration

import org.apache.spark.internal.Logging
import org.apache.spark.sql.binshift.retention.SourceCheck

/**
 * Keeps a step waiting until the partitions that give bins can be rebuilt from the checkpoint ([[SourceCheck]]).
 *
 * The look for the first two steps begins when the migration is submitted, and that for the next two with each step that is scheduled.
 * So the answer is there by the time it is needed, unless the checkpoint is slow. Then the step waits for some epochs and goes on
 * without an answer, because a query whose files cannot be listed must not be kept from changing for ever.
 *
 * Called under the router's lock.
 *
 * @param stores those of the epoch planned last; `None` before the first
 */
private[binshift] final class StepSources(check: SourceCheck, stores: () => Option[SourceCheck.Stores]) extends Logging {
  import StepSources._

  /** For how many epochs in a row there has been no answer. */
  private var missed = 0

  /** Begins to look at the sources of step `index` and of the one after it, if there are any. Returns at once. */
  def look(m: PlannedMigration, index: Int): Unit = {
    val steps = m.plan.steps.slice(index, index + AtOnce)
    if (steps.nonEmpty) check.look(stores(), m.id, index, index + steps.size, steps.flatMap(_.moves).map(_.bin).toSet)
  }

  /** What the checkpoint lacks to rebuild partitions from, in words; looks for nothing. */
  def lost: Option[String] = check.whatIsLost

  /** True if a step that is due at `epoch` may soon need an answer. A step that is due much later is looked at later. */
  def isNear(epoch: Long, next: Long): Boolean = epoch - next <= AgeToLookAgain

  /**
   * Looks at the sources of step `index` again if the last answer is getting old, since the step may still wait for something else.
   * So the next answer is there before this one is too old.
   */
  def keepUp(m: PlannedMigration, index: Int, next: Long): Unit =
    if (ageOf(m, index, next).forall(_ >= AgeToLookAgain)) look(m, index)

  /**
   * For how many epochs in a row there has been no answer whether the checkpoint has all sources of step `index`, which waits for
   * nothing else; 0 if there is one.
   *
   * @param next    the epoch that is decided
   * @param isFirst whether the run has just begun: then it loads all stores from the checkpoint, and fails if one cannot be
   */
  def unanswered(m: PlannedMigration, index: Int, next: Long, isFirst: Boolean): Int = {
    missed = if (isFirst || ageOf(m, index, next).exists(_ <= MaxAge)) 0 else missed + 1
    if (missed == StepDecision.MaxUnanswered + 1) logWarning(
      s"step ${index + 1} of migration ${m.id} does not wait any more for an answer whether the checkpoint has all that its " +
        s"bins could be rebuilt from: there was none for ${StepDecision.MaxUnanswered} epochs")
    missed
  }

  /** How many epochs ago the sources of step `index` were looked at. */
  private def ageOf(m: PlannedMigration, index: Int, next: Long): Option[Long] = check.lookedAt(m.id, index).map(next - _)
}

private object StepSources {
  /** Steps whose sources are looked at at a time, so that there is an epoch's time for each. */
  private val AtOnce = 2
  /** In epochs, of an answer. */
  private val MaxAge = 50
  private val AgeToLookAgain = 25
}
