package org.apache.spark.sql.execution.streaming.state.binshift.checkpoint

import java.io.FileNotFoundException

import scala.collection.mutable

import org.apache.hadoop.fs.Path

/**
 * What Spark's log of offsets and the claims of runs say of epochs that were run: the routing entry in force, and the run.
 *
 * This, and not what is in the directory of entries, decides which entry is obeyed: an entry that is named nowhere, and that no
 * named one follows, is of a driver that came no further.
 *
 * @param logged  what was logged with an epoch; `None` if that is not in the log
 * @param history read when it is first asked for
 */
private[sql] final class LoggedEpochs(dir: ControlDir, logged: Long => Option[LoggedConf], history: => RunHistory) {
  import LoggedEpochs._

  private lazy val runs = history

  /** The entry that was in force when `epoch` ran. The log has it, but for the first epoch of a run, whose claim has it. */
  def at(epoch: Long): Option[NamedEntry] = logged(epoch).flatMap { conf =>
    conf.conf.get(EntryName.Key).flatMap(EntryName.parse).orElse(runs.begunWith(epoch, conf.atMs).map(_.began._2))
      .map(NamedEntry(epoch, _))
  }

  /** Of the newest epoch from `first` on and before `last` of which it is known. */
  private def before(last: Long, first: Long): Option[NamedEntry] = {
    val inLog = numbers.reverseIterator.filter(e => e < last && e >= first).take(MaxLogged).flatMap(at).nextOption()
    val claimed = runs.runs.find(_.epoch < last).map(_.began).collect { case (at, name) if at >= first => NamedEntry(at, name) }
    (inLog ++ claimed).maxByOption(_.at)
  }

  /**
   * The one from which the entry of `epoch` is found for sure, by going back from entry to entry: that of the epoch, or
   * of the newest one that is logged, as runs of a single epoch log no names, and their claims are not kept for long. If the logs were
   * wound back so far that no claim of a run before is left, it is that of the earliest run that is known, which began later. Without
   * any, that of the newest one before.
   *
   * @param first   the first binned epoch of the checkpoint
   * @param isThere whether an entry can be read: that of a run whose epochs are not in the log any more may be gone
   */
  def near(epoch: Long, first: Long, isThere: EntryName => Boolean): Option[NamedEntry] =
    Option.when(epoch >= first)(at(epoch)).flatten
      .orElse(numbers.reverseIterator.filter(_ > epoch).take(MaxLogged).flatMap(at).nextOption())
      .orElse(claimedAfter(epoch).filter(named => isThere(named.entry))).orElse(before(epoch, first))

  private def claimedAfter(epoch: Long): Option[NamedEntry] =
    runs.runs.takeWhile(_.epoch > epoch).lastOption.map(run => NamedEntry(run.epoch, run.began._2))

  /**
   * Whether what a run made of `epoch` is what the query goes on with: it ran the epoch as the log has it. So it may be another run
   * that goes on. Where Spark has purged the epoch, the oldest one that is there and names a run tells, since a run logs one epoch after
   * the other.
   *
   * @param ranAtMs when the epoch was logged that the run has run; `None` if that is not known, as to a job from a thread of a
   *                foreign pool. A run that has claimed the epoch as it is logged has run it so.
   */
  def owns(epoch: Long, runId: String, ranAtMs: Option[Long]): Boolean = logged(epoch) match {
    case Some(conf) if ranAtMs.isDefined => conf.atMs == ranAtMs
    case there => there.exists(conf => runs.begunWith(epoch, conf.atMs).exists(_.runId == runId)) ||
      numbers.iterator.filter(_ >= epoch).take(2).flatMap(logged(_)).flatMap(_.conf.get(RunHistory.Key)).nextOption()
        .contains(runId)
  }

  /** Whether the log has `epoch`, and not as the run has run it. */
  def isLoggedAnew(epoch: Long, runId: String, ranAtMs: Option[Long]): Boolean =
    logged(epoch).isDefined && !owns(epoch, runId, ranAtMs)

  /** The epochs in the log, ascending. */
  private lazy val numbers: Seq[Long] = {
    val offsets = new Path(dir.path.getParent, "offsets")
    try offsets.getFileSystem(dir.hadoopConf).listStatus(offsets).toSeq.flatMap(_.getPath.getName.toLongOption).sorted
    catch { case _: FileNotFoundException => Nil }
  }
}

private[sql] object LoggedEpochs {
  /** Epochs that are looked at for the name of an entry: it is known of all but first ones of runs of long ago. */
  private val MaxLogged = 8

  /** As a process knows them that has no log open; for one thread, which is done with it soon. */
  def read(dir: ControlDir): LoggedEpochs = {
    val known = mutable.Map.empty[Long, Option[LoggedConf]]
    new LoggedEpochs(dir, e => known.getOrElseUpdate(e, LoggedConf.read(dir, e)), RunHistory.read(dir))
  }
}

/** @param at an epoch at which `entry` was in force */
private[sql] final case class NamedEntry(at: Long, entry: EntryName)
