package org.apache.spark.sql.binshift.query

import org.apache.spark.internal.Logging
import org.apache.spark.sql.binshift.internals.SparkInternals
import org.apache.spark.sql.binshift.migration.PlannedMigration
import org.apache.spark.sql.binshift.realtime.EpochProtocol
import org.apache.spark.sql.binshift.retention.LostState
import org.apache.spark.sql.binshift.routing.{BinsSetting, EntryInForce, RoutingEntries, StatefulOperators}
import org.apache.spark.sql.binshift.stock.TakeoverEpochs
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.streaming.operators.stateful.StateStoreWriter
import org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution
import org.apache.spark.sql.execution.streaming.state.binshift.{BinshiftException, Faults, Trace}
import org.apache.spark.sql.execution.streaming.state.binshift.checkpoint._
import org.apache.spark.sql.execution.streaming.state.binshift.routing.{RoutingEntry, RoutingTable}
import org.apache.spark.sql.internal.SQLConf

/**
 * Begins a run with its first epoch, in two phases. `look` reads everything that might refuse the run, and writes nothing.
 * `write` claims the place of the run, and prepares the checkpoint for it.
 *
 * Another driver may still be alive. It is found out at the latest when both log the same epoch, or the same commit, because only
 * the first one succeeds; and earlier by its claim ([[RunHistory]]) if it begins while this run looks. Until then, nothing is
 * changed that the other driver may rely on: a repeated epoch (`isAgain`) keeps the existing layout and table, and no state is
 * deleted that may have been made by a run that continues from what the logs have.
 *
 * Called on the stream's thread, under the lock of the run.
 */
private[binshift] final class FirstEpoch(
    query: MicroBatchExecution, dir: ControlDir, entries: RoutingEntries, protocol: EpochProtocol) extends Logging {
  private val lost = new LostState(query, dir)
  private def conf = query.sparkSessionForStream.sessionState.conf

  /**
   * @param n the partitions that Spark has logged
   * @throws BinshiftException if the run must not go on
   */
  def look(epoch: Long, n: Int, operators: Seq[StateStoreWriter], session: SparkSession): Opening = {
    // Read first: if a run claims its place after this, the claim of this run fails.
    val history = RunHistory.read(dir)
    // In real-time mode, an epoch is logged when it ends, so the logs don't show whether another run is in the middle of it.
    val isRealTime = protocol.isRealTime
    val logged = query.offsetLog.get(epoch)
    val loggedAt = logged.flatMap(SparkInternals.loggedAtMs)
    val begunBefore = history.begunWith(epoch, loggedAt)
    val isLogged = !isRealTime && (QueryStarts.lastLogged(query.runId).contains(epoch) ||
      SparkInternals.isOfAnother(query, epoch) || begunBefore.isDefined)
    val isAgain = isRealTime || isLogged
    val takeOver = TakeoverEpochs.of(query.runId)
    val stored = Layout.read(dir)
    val setting = new BinsSetting(session)
    entries.list()
    val opening = if (epoch == 0 || takeOver.isDefined) {
      val wanted = setting.layoutOf(operators, n).copy(takenOverAt = takeOver.map(_.epoch))
      val begunWith = stored.filter(s => isAgain && s.takenOverAt == wanted.takenOverAt)
      begunWith.foreach(requireFitting(_, n, epoch, setting))
      val theirs = begunBefore.orElse(history.runs.headOption.filter(_.epoch == epoch && isRealTime))
      val there = theirs.filter(_ => isAgain).flatMap(run => entries.read(run.began._2))
      if (isRealTime && takeOver.isEmpty) there.foreach(requireBegunAlike(_, n, epoch))
      val layout = begunWith.fold(wanted)(k =>
        wanted.copy(bins = k.bins, requestedBins = k.requestedBins, sparkVersion = k.sparkVersion))
      val initial = RoutingTable.initial(layout.bins, n)
      val entry = there.filter(_.table == initial)
      Opening(layout, stored, entry.getOrElse(RoutingEntry(epoch, initial, None, None, query.runId.toString)),
        isEntryNew = entry.isEmpty, isAgain)
    } else {
      val layout = stored.getOrElse(
        throw BinshiftException("CHECKPOINT_WITHOUT_BINS", "checkpoint" -> dir.path.getParent).configuration(
          s"${dir.path} has no ${Layout.File}, though the checkpoint is at epoch $epoch: its state was " +
            "not written by binshift, or the directory was removed; start with a new checkpoint or restore it"))
      setting.requireThatOf(layout)
      val entry =
        new EntryInForce(query, dir, history, isRealTime, PlannedMigration.isUnderWay(dir, _)).at(epoch, n,
          isLogged, layout.takenOverAt.getOrElse(0L))
      requireTable(entry, epoch, n, layout)
      // A logged epoch may have another number of partitions than the epoch before.
      lazy val before =
        if (entry.epoch == epoch) entry.previous.flatMap(entries.read).fold(n)(_.table.partitions) else n
      if (!isLogged) requireIdsOf(before, epoch, layout, operators)
      Opening(layout, stored, entry, isEntryNew = false, isAgain)
    }
    SparkInternals.requireNewest(query, protocol.newestLogged(epoch), epoch)
    val hasIds = isRealTime || LostState.areIdsInNames(query, epoch, operators)
    if (!hasIds) requireNoLaterSavepoint(epoch)
    sayOfStrays(opening.entry)
    opening.copy(history = history, hasIds = hasIds,
      run = Some(
        RunStart(query.runId.toString, (epoch, opening.entry.name), loggedAt, Some(conf.minBatchesToRetain))))
  }

  /** Without ids in their names, files of the epochs that run again would take the places of files that a savepoint keeps. */
  private def requireNoLaterSavepoint(epoch: Long): Unit = for (later <- new Savepoints(dir).ofEpochSince(epoch))
    throw BinshiftException("SAVEPOINT_IS_LATER", "savepoint" -> later.name, "epoch" -> epoch).configuration(
      s"epoch $epoch would run again, and savepoint ${later.name} keeps state of epoch ${later.epoch} in the same files " +
        s"(checkpoint format 1); start from a fork (`binshift fork`), or drop the savepoint (`binshift savepoint drop ${dir.checkpoint} " +
        s"${later.name}`), and start again")

  /**
   * Logs that there are entries besides the one in force, or after it. Older ones of drivers that were alive at the same time
   * aren't mentioned, because all entries would have to be read to find them.
   */
  private def sayOfStrays(inForce: RoutingEntry): Unit = {
    val strays = entries.names.filter(name => name.epoch >= inForce.epoch && name != inForce.name)
    if (strays.nonEmpty) logInfo(
      s"query ${query.id} continues with ${dir.path}/routing/${inForce.name.file}. It ignores " +
        s"${strays.map(_.file).mkString(", ")} in the same directory, because the epoch of such an entry was never logged, or is no " +
        "longer in the logs. If its migration is still under way, the step is planned again; the file is deleted later")
  }

  private def requireFitting(there: Layout, n: Int, epoch: Long, setting: BinsSetting): Unit = {
    setting.requireThatOf(there)
    if (there.bins % n != 0) throw BinshiftException("BINS_ARE_FIXED", "bins" -> there.bins).configuration(
      s"an earlier run began epoch $epoch with ${there.bins} bins, which cannot be divided equally among $n partitions; " +
        s"nothing of the epoch is committed, so delete ${dir.path} and the state of the epoch, or start with a new checkpoint")
  }

  /**
   * In real-time mode, the logs don't show with how many partitions another run, which may be alive, has begun epoch 0. The entry
   * does.
   */
  private def requireBegunAlike(there: RoutingEntry, n: Int, epoch: Long): Unit = {
    val theirs = there.table.partitions
    if (theirs != n) throw BinshiftException("ANOTHER_RUN", "checkpoint" -> query.resolvedCheckpointRoot).configuration(
      s"epoch $epoch was begun with $theirs partitions by another run, which may still be in the middle of it, and this run has " +
        s"$n; stop the other run, and start with $theirs partitions or with a new checkpoint")
  }

  private def requireTable(entry: RoutingEntry, epoch: Long, n: Int, layout: Layout): Unit =
    if (entry.table.partitions != n || entry.table.bins != layout.bins) {
      throw BinshiftException("PARTITIONS_CHANGED", "epoch" -> epoch).configuration(
        s"epoch $epoch was logged with $n partitions, but the routing table in force since epoch " +
          s"${entry.epoch} has ${entry.table.partitions} partitions and ${entry.table.bins} of " +
          s"${layout.bins} bins; the checkpoint was changed by another tool; restore it from a copy")
    }

  /**
   * Two runs may have written the two logs of one epoch: a run that starts removes uncommitted epochs from the log of offsets,
   * and logs its own. If the other run then commits with another number of partitions, its state doesn't fit the offsets.
   */
  private def requireIdsOf(n: => Int, epoch: Long, layout: Layout, operators: Seq[StateStoreWriter]): Unit = for {
    op <- operators if layout.operators.get(StatefulOperators.idOf(op)).exists(_.storage == Storage.Binned)
    ids <- op.getStateInfo.stateStoreCkptIds if ids.length != n
  } throw BinshiftException("ANOTHER_RUN", "checkpoint" -> query.resolvedCheckpointRoot).configuration(
    s"commits/${epoch - 1} has state of ${ids.length} partitions, and offsets/${epoch - 1} was logged with $n: two runs of query " +
      s"${query.id} wrote epoch ${epoch - 1}; stop the other run, and take epochs from ${epoch - 1} on out of the logs of offsets " +
      "and commits")

  /**
   * Writes in this order, because a claim must name a durable entry, and because `layout.json` must exist only once everything
   * else does. So a start that is cut short begins again.
   */
  def write(opening: Opening): Unit = for (run <- opening.run) {
    Faults.at("run.begin")
    if (Trace.isOn) Trace("run claims", dir.checkpoint, "run" -> run.runId, "number" -> (opening.history.newest + 1),
      "epoch" -> run.epoch,
      "logged_at" -> run.loggedAtMs, "entry" -> run.began._2.render, "again" -> opening.isAgain,
      "bins" -> opening.layout.bins, "taken_over_at" -> opening.layout.takenOverAt,
      "real_time" -> protocol.isRealTime, "retained" -> conf.minBatchesToRetain,
      "format" -> conf.getConf(SQLConf.STATE_STORE_CHECKPOINT_FORMAT_VERSION))
    if (opening.isEntryNew) entries.write(opening.entry)
    val claim = RunHistory.claim(dir, opening.history, run).getOrElse(throw anotherRun("began while this one looked at"))
    if (Trace.isOn) Trace("run claimed", dir.checkpoint, "run" -> run.runId, "number" -> claim)
    Faults.at("run.claimed")
    TakeoverEpochs.requireLogged(query, run.epoch)
    def requireNewest(): Unit =
      if (dir.numbers(RunHistory.Dir).lastOption.exists(_ > claim)) throw anotherRun("has begun to go on with")
    lost.delete(run.epoch, run.loggedAtMs, opening.hasIds, opening.history, () => requireNewest())
    writeLayout(opening, () => requireNewest())
    Faults.at("run.begun")
    TakeoverEpochs.requireLogged(query, run.epoch)
    if (Trace.isOn) Trace("run begun", dir.checkpoint, "run" -> run.runId, "epoch" -> run.epoch)
  }

  /**
   * Writes the layout. Replaces an existing one only if it is the one that this run has seen, from an earlier life of the
   * checkpoint.
   */
  private def writeLayout(opening: Opening, requireNewest: () => Unit): Unit =
    if (!opening.stored.contains(opening.layout)) {
      if (opening.stored.isDefined) {
        requireNewest()
        Layout.write(dir, opening.layout)
      } else if (!Layout.create(dir, opening.layout) && !Layout.read(dir).contains(opening.layout))
        throw anotherRun(s"has written ${Layout.File} in")
    }

  private def anotherRun(what: String): BinshiftException = {
    val root = query.resolvedCheckpointRoot
    BinshiftException("ANOTHER_RUN", "checkpoint" -> root).configuration(
      s"another run of query ${query.id} $what $root; stop the other run, and start the query again")
  }
}

/**
 * The findings at the first epoch of a run, and what is to be written.
 *
 * @param stored  `layout.json` as it is in the checkpoint
 * @param entry   the routing entry in force
 * @param isAgain whether an earlier run has logged the epoch, or may be in the middle of it
 * @param history the earlier runs, after which `run` claims its place
 * @param hasIds  whether names of state files contain ids, so that files of lost epochs are never read
 */
private[binshift] final case class Opening(
    layout: Layout,
    stored: Option[Layout],
    entry: RoutingEntry,
    isEntryNew: Boolean,
    isAgain: Boolean,
    history: RunHistory = RunHistory.Empty,
    run: Option[RunStart] = None,
    hasIds: Boolean = true)
