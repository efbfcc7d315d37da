package org.apache.spark.sql.execution.streaming.state.binshift.checkpoint

import java.io.FileNotFoundException

import scala.collection.mutable

import org.apache.hadoop.fs.Path

/**
 * Finds out from Spark's log of offsets, and from the claims of runs, which routing entry was in force at an epoch, and which run
 * it belongs to.
 *
 * Only the log and the claims decide which entries are used. The directory of entries doesn't: an entry that is named nowhere,
 * and that no named entry leads back to, was written by a driver that got no further.
 *
 * @param logged  what was logged with an epoch; `None` if the epoch isn't in the log
 * @param history the claims; read on first use
 */
private[sql] final class LoggedEpochs(dir: ControlDir, logged: Long => Option[LoggedConf], history: => RunHistory) {
  import LoggedEpochs._

  private lazy val runs = history

  /** The entry that was in force when `epoch` ran. The log has its name, or for the first epoch of a run, the run's claim. */
  def at(epoch: Long): Option[NamedEntry] = logged(epoch).flatMap { conf =>
    conf.conf.get(EntryName.Key).flatMap(EntryName.parse).orElse(runs.begunWith(epoch, conf.atMs).map(_.began._2))
      .map(NamedEntry(epoch, _))
  }

  /** The entry at the newest epoch from `first` on and before `last` for which it is known. */
  private def before(last: Long, first: Long): Option[NamedEntry] = {
    val inLog = numbers.reverseIterator.filter(e => e < last && e >= first).take(MaxLogged).flatMap(at).nextOption()
    val claimed = runs.runs.find(_.epoch < last).map(_.began).collect { case (at, name) if at >= first => NamedEntry(at, name) }
    (inLog ++ claimed).maxByOption(_.at)
  }

  /**
   * An entry from which one certainly finds the entry of `epoch` by going back: that of the epoch itself, or else of the newest logged
   * epoch. (It takes the newest and not the next one, because runs of a single epoch log no names, and their claims aren't kept for
   * long.) If the logs were wound back so far that the claims of earlier runs are gone, it is the entry of the earliest run that began
   * later. Without any, the newest entry before.
   *
   * @param first   the first binned epoch of the checkpoint
   * @param isThere whether an entry can be read; that of a run whose epochs are no longer in the log may be gone
   */
  def near(epoch: Long, first: Long, isThere: EntryName => Boolean): Option[NamedEntry] =
    Option.when(epoch >= first)(at(epoch)).flatten
      .orElse(numbers.reverseIterator.filter(_ > epoch).take(MaxLogged).flatMap(at).nextOption())
      .orElse(claimedAfter(epoch).filter(named => isThere(named.entry))).orElse(before(epoch, first))

  private def claimedAfter(epoch: Long): Option[NamedEntry] =
    runs.runs.takeWhile(_.epoch > epoch).lastOption.map(run => NamedEntry(run.epoch, run.began._2))

  /**
   * True if the query continues with what a run made of `epoch`, because the run ran the epoch as it is logged. It may nevertheless be
   * another run that continues. If Spark has purged the epoch, the oldest logged epoch that names a run decides, because a run logs
   * one epoch after the other.
   *
   * @param ranAtMs when the epoch that the run has run was logged; `None` if that isn't known, for example in a job from a thread of
   *                a foreign pool. Then it is enough that the run has claimed the epoch as it is logged.
   */
  def owns(epoch: Long, runId: String, ranAtMs: Option[Long]): Boolean = logged(epoch) match {
    case Some(conf) if ranAtMs.isDefined => conf.atMs == ranAtMs
    case there => there.exists(conf => runs.begunWith(epoch, conf.atMs).exists(_.runId == runId)) ||
      numbers.iterator.filter(_ >= epoch).take(2).flatMap(logged(_)).flatMap(_.conf.get(RunHistory.Key)).nextOption()
        .contains(runId)
  }

  /** True if the log has `epoch`, but differently from what the run has run. */
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
  /** How many epochs are searched for the name of an entry. Only the first epochs of runs of long ago have none. */
  private val MaxLogged = 8

  /** For processes that don't have the log open. For short use by one thread. */
  def read(dir: ControlDir): LoggedEpochs = {
    val known = mutable.Map.empty[Long, Option[LoggedConf]]
    new LoggedEpochs(dir, e => known.getOrElseUpdate(e, LoggedConf.read(dir, e)), RunHistory.read(dir))
  }
}

/** @param at an epoch at which `entry` was in force */
private[sql] final case class NamedEntry(at: Long, entry: EntryName)
