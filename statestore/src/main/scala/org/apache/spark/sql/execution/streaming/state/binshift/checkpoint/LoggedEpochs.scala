package org.apache.spark.sql.execution.streaming.state.binshift.checkpoint

import java.io.FileNotFoundException

import scala.collection.mutable

import org.apache.hadoop.fs.Path

/**
 * What Spark's log of offsets and the claims of runs say about epochs: the routing entry in force, and the run.
 *
 * Only they decide which entries are used, and not the directory of entries. If an entry is named nowhere, and no named entry leads
 * back to it, it was written by a driver that got no further.
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

  /** The entry at the newest epoch from `first` to `last` for which it is known. */
  def upTo(last: Long, first: Long): Option[NamedEntry] = Option.when(last >= first)(at(last)).flatten.orElse {
    val inLog = numbers.reverseIterator.filter(e => e < last && e >= first).take(MaxLogged).flatMap(at).nextOption()
    // The epoch itself may have been taken out of the log, and logged again.
    val claimed = runs.runs.find(r => r.epoch < last || r.hasBegun(last, logged(last).flatMap(_.atMs))).map(_.began)
      .collect { case (at, name) if at >= first => NamedEntry(at, name) }
    (inLog ++ claimed).maxByOption(_.at)
  }

  /**
   * An entry from which one certainly finds the entry of `epoch` by going back: that of the epoch itself, or else of the newest logged
   * epoch. (It takes the newest and not the next one, because runs of a single epoch log no names, and their claims aren't kept for
   * long.) Without any, the newest entry before.
   */
  def near(epoch: Long, first: Long): Option[NamedEntry] =
    at(epoch).orElse(numbers.reverseIterator.filter(_ > epoch).take(MaxLogged).flatMap(at).nextOption())
      .orElse(claimedAfter(epoch)).orElse(upTo(epoch, first))

  /**
   * The entry with which a run began after `epoch`, of the earliest such run that is known. If nothing names the entry of `epoch`, one
   * can find it by going back from here. This is needed if the logs were wound back so far that the claims of earlier runs are gone.
   */
  def claimedAfter(epoch: Long): Option[NamedEntry] =
    runs.runs.takeWhile(_.epoch > epoch).lastOption.map(run => NamedEntry(run.epoch, run.began._2))

  /**
   * Whether the query continues with what a run made of `epoch`, because the run ran the epoch as it is logged. It may nevertheless be
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

  /** Whether the log has `epoch`, but differently from what the run has run. */
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
