package org.apache.spark.sql.binshift.migration

import org.apache.spark.internal.Logging
import org.apache.spark.sql.binshift.retention.SourceCheck

/**
 * Keeps a step waiting until the partitions that give bins can be rebuilt from the checkpoint ([[SourceCheck]]).
 *
 * When a migration is submitted, the check of the sources of its first two steps begins, and with each step that is scheduled, that
 * of the next two. So the answer is there by the time it is needed, unless the checkpoint is slow. In that case the step waits, but
 * only for some epochs, because a query whose files can't be listed must still be able to change.
 *
 * Called under the lock of the run.
 */
private[binshift] final class StepSources(check: SourceCheck) extends Logging {
  import StepSources._

  /** Number of epochs in a row without an answer. */
  private var missed = 0

  /** Begins to check whatever `m` moves, of its bins those of the first two steps. Returns at once. */
  def begin(m: PlannedMigration): Unit = {
    if (m.options.movesPartitions) check.lookAtAll()
    look(m, 0)
  }

  /** Begins to check the sources of step `index` and of the step after it, if there are any. Returns at once. */
  def look(m: PlannedMigration, index: Int): Unit = {
    val steps = m.plan.steps.slice(index, index + AtOnce)
    if (steps.nonEmpty) check.look(m.id, index, index + steps.size, steps.flatMap(_.moves).map(_.bin).toSet)
  }

  /** Describes the files that the checkpoint is known to lack for rebuilding partitions. Checks nothing itself. */
  def lost: Option[String] = check.whatIsLost

  /** True if a step that is due at `epoch` may soon need an answer. The sources of a step that is due much later are checked later. */
  def isNear(epoch: Long, next: Long): Boolean = epoch - next <= AgeToLookAgain

  /**
   * Checks the sources of step `index` again if the last answer is getting old, because the step may have to wait for something
   * else. So the next answer is there before this one is too old.
   */
  def keepUp(m: PlannedMigration, index: Int, next: Long): Unit =
    if (ageOf(m, index, next).forall(_ >= AgeToLookAgain)) look(m, index)

  /**
   * Number of epochs in a row without an answer whether the checkpoint has all sources of step `index`, which waits for nothing
   * else; 0 if there is one now. Keeps the answer up, too.
   *
   * @param next    the epoch for which the step is decided
   * @param isFirst whether the run has just begun. If so, it loads all stores from the checkpoint anyway, and fails if it can't.
   */
  def unanswered(m: PlannedMigration, index: Int, next: Long, isFirst: Boolean): Int = {
    keepUp(m, index, next)
    missed = if (isFirst || ageOf(m, index, next).exists(_ <= MaxAge)) 0 else missed + 1
    if (missed == StepDecision.MaxUnanswered + 1) logWarning(
      s"step ${index + 1} of migration ${m.id} no longer waits to hear whether its bins could be rebuilt from the checkpoint, " +
        s"which has not answered for ${StepDecision.MaxUnanswered} epochs")
    missed
  }

  /** The number of epochs since the sources of step `index` were checked. */
  private def ageOf(m: PlannedMigration, index: Int, next: Long): Option[Long] = check.lookedAt(m.id, index).map(next - _)
}

private object StepSources {
  /** The number of steps whose sources are checked at a time, so that a check has at least an epoch's time. */
  private val AtOnce = 2
  /** The age in epochs up to which an answer counts. */
  private val MaxAge = 50
  private val AgeToLookAgain = 25
}
