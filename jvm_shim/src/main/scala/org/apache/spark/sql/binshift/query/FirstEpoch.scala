package org.apache.spark.sql.binshift.query

import org.apache.hadoop.fs.Path

import org.apache.spark.sql.binshift.internals.SparkInternals
import org.apache.spark.sql.binshift.migration.PlannedMigration
import org.apache.spark.sql.binshift.realtime.RealTimeMode
import org.apache.spark.sql.binshift.retention.{LaterFile, LostVersions, RunEnd}
import org.apache.spark.sql.binshift.routing.{BinsSetting, EntryInForce, RoutingEntries, StatefulOperators}
import org.apache.spark.sql.binshift.stock.TakeoverEpochs
import org.apache.spark.sql.binshift.internals.StreamLogs.Offsets
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.streaming.operators.stateful.StateStoreWriter
import org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution
import org.apache.spark.sql.execution.streaming.state.binshift.{BinshiftException, Faults}
import org.apache.spark.sql.execution.streaming.state.binshift.checkpoint._
import org.apache.spark.sql.execution.streaming.state.binshift.routing.{RoutingEntry, RoutingTable}

/**
 * The first epoch of a run, in two phases: `look` reads all that may refuse the run, and writes nothing; `write` makes
 * the checkpoint what the run goes on from.
 *
 * Another driver may be alive. It is found out by the time one of the two logs an epoch or its end, since that fails for the
 * second one. Until this run has logged an epoch of its own, nothing is written that the other one lives by: an epoch that is
 * run again (`isAgain`) keeps the layout and the table that are there, and the entries of later epochs.
 *
 * Called on the stream's thread, under the router's lock.
 */
private[binshift] final class FirstEpoch(query: MicroBatchExecution, dir: ControlDir, entries: RoutingEntries) {
  private val versions = new LostVersions(new Path(query.resolvedCheckpointRoot, "state"), dir.hadoopConf)

  /**
   * @param n the partitions that Spark has logged
   * @throws BinshiftException if the run must not go on
   */
  def look(epoch: Long, n: Int, operators: Seq[StateStoreWriter], session: SparkSession): Opening = {
    // In real-time mode it is logged when it ends: no log tells whether another run is in the midst of it.
    val isRealTime = RealTimeMode.isOf(query)
    val isLogged =
      !isRealTime && (QueryStarts.lastLogged(query.runId).contains(epoch) || SparkInternals.isOfAnother(query, epoch))
    val isAgain = isRealTime || isLogged
    val takeOver = TakeoverEpochs.of(query.runId)
    val history = RunHistory.read(dir)
    val end = RunEnd.read(dir).filter(_.excludesLost(history, epoch, isAgain))
    // An epoch that was logged, and not planned before its run ended, has left no state either.
    val kept = if (end.exists(_.epoch == epoch)) epoch + 1 else epoch
    // Before the rest: state of another run that is still alive is there only after its layout, and after its epoch was logged.
    val found = if (end.isDefined) versions.unexpectedAfter(kept, epoch) else versions.after(epoch, epoch)
    val stored = Layout.read(dir)
    val setting = new BinsSetting(session)
    val opening = if (epoch == 0 || takeOver.isDefined) {
      val wanted = setting.layoutOf(operators, n).copy(takenOverAt = takeOver.map(_.epoch))
      val begunWith = stored.filter(s => isAgain && s.takenOverAt == wanted.takenOverAt)
      begunWith.foreach(requireFitting(_, n, epoch, setting))
      if (isRealTime && takeOver.isEmpty) requireBegunAlike(n, epoch)
      val layout = begunWith.fold(wanted)(k =>
        wanted.copy(bins = k.bins, requestedBins = k.requestedBins, sparkVersion = k.sparkVersion))
      begun(epoch, n, layout, stored, begunWith.isDefined, isAgain)
    } else {
      val layout = stored.getOrElse(
        throw BinshiftException("CHECKPOINT_WITHOUT_BINS", "checkpoint" -> dir.path.getParent).configuration(
          s"${dir.path} has no ${Layout.File}, though the checkpoint is at epoch $epoch: its state was " +
            "not written by binshift, or the directory was removed; start with a new checkpoint or restore it"))
      setting.requireThatOf(layout)
      val entry =
        new EntryInForce(query, dir, entries, isRealTime, PlannedMigration.isUnderWay(dir, _)).at(epoch, n,
          isLogged, layout.takenOverAt.getOrElse(0L))
      requireTable(entry, epoch, n, layout)
      // An epoch that is logged may have another number of partitions than the one before.
      lazy val before = if (entry.epoch == epoch) entries.read(entry.previous).fold(n)(_.table.partitions) else n
      if (!isLogged) requireIdsOf(before, epoch, layout, operators)
      Opening(layout, stored, entry, isEntryNew = false, void = Nil, isAgain, isStateKept = isAgain)
    }
    SparkInternals.requireNewest(query, if (isRealTime) epoch - 1 else epoch, epoch)
    val logged = query.offsetLog.get(epoch)
    // In real-time mode what an attempt has left has ids of its own, which nobody reads; it may be that of a run that lives.
    val goesOnFrom = if (opening.isStateKept && (isRealTime || hasBegun(epoch, logged, history, stored))) epoch + 1 else epoch
    val later = if (end.isDefined && goesOnFrom < kept) versions.after(epoch, epoch) else found
    if (isAgain) requireLast(history)
    val undecided = if (isRealTime) entries.epochs.filter(e => e == epoch && e != opening.entry.epoch) else Nil
    val lost = lostOf(later, goesOnFrom)
    opening.copy(
      // An entry of this very epoch that is not in force, or one of a later epoch, never came to be.
      void = opening.void ++ entries.epochs.filter(e =>
        e >= epoch && e != opening.entry.epoch && !(isAgain && e > epoch) && !undecided.contains(e)),
      undecided = undecided,
      isBack = !entries.epochs.contains(opening.entry.epoch) && !opening.isEntryNew,
      lost = lost,
      history = history,
      run = Some(RunStart(query.runId.toString, goesOnFrom, (epoch, opening.entry.name), lost.nonEmpty,
          logged.flatMap(SparkInternals.loggedAtMs))))
  }

  /** What has been listed is of the runs of `before` only: a run makes state after it is in the history. */
  private def requireLast(before: RunHistory): Unit =
    for (last <- RunHistory.read(dir).runs.lastOption.map(_.runId) if !before.runs.lastOption.exists(_.runId == last))
      throw BinshiftException("ANOTHER_RUN", "checkpoint" -> query.resolvedCheckpointRoot).configuration(
        s"run $last of query ${query.id} began while this one looked at ${query.resolvedCheckpointRoot}; stop the other run, " +
          "and start the query again")

  /**
   * Whether an earlier run has got as far with an epoch that it has logged as to run its tasks. If not, state of the next
   * version is of an epoch that was lost before. Only the first epoch of a run is logged without a routing entry, and what
   * that run deletes comes before its tasks. Where no run of binshift is known, Spark's own provider has run the epoch, or the
   * history went while it was replaced, before what was lost had been deleted.
   */
  private def hasBegun(epoch: Long, logged: Option[Offsets], history: RunHistory, stored: Option[Layout]): Boolean =
    logged.exists(SparkInternals.entryName(_).isDefined) || history.runs.lastOption.fold(stored.isEmpty || isStock(logged)) {
      last =>
        last.hasBegun(epoch, logged.flatMap(SparkInternals.loggedAtMs)) && !last.isCleaning
    }

  private def isStock(logged: Option[Offsets]): Boolean =
    logged.flatMap(SparkInternals.providerOf).exists(!SparkInternals.isBinshiftProvider(_))

  private def lostOf(later: Seq[LaterFile], goesOnFrom: Long): Seq[Path] =
    later.filter(_.version.forall(_ > goesOnFrom)).map(_.path)

  /** What the checkpoint begins with. Nothing binned is committed: what a run that was cut short has left is replaced. */
  private def begun(
      epoch: Long, n: Int, layout: Layout, stored: Option[Layout], isKept: Boolean, isAgain: Boolean): Opening = {
    val epochs = entries.listed()
    val initial = RoutingTable.initial(layout.bins, n)
    val there = Option.when(isAgain)(epochs.filter(e => e <= epoch && (isKept || e == epoch)).lastOption).flatten
      .flatMap(entries.read).filter(_.table == initial)
    val entry = there.getOrElse(
      RoutingEntry(epoch, initial, None, System.currentTimeMillis(), RoutingEntry.First))
    val isStock = layout.takenOverAt.exists(_ > epoch)
    Opening(layout, stored, entry, isEntryNew = there.isEmpty, void = epochs.filter(e => e < epoch && e != entry.epoch),
      isAgain, isStateKept = isAgain && (isStock || stored.contains(layout)))
  }

  private def requireFitting(there: Layout, n: Int, epoch: Long, setting: BinsSetting): Unit = {
    setting.requireThatOf(there)
    if (there.bins % n != 0) throw BinshiftException("BINS_ARE_FIXED", "bins" -> there.bins).configuration(
      s"epoch $epoch was begun with ${there.bins} bins, of which $n partitions cannot have equally many; nothing of it is " +
        s"committed: delete ${dir.path} and the state of the epoch, or start with a new checkpoint")
  }

  /** In real-time mode no log tells with how many partitions another run, which may live, is in the midst of epoch 0. */
  private def requireBegunAlike(n: Int, epoch: Long): Unit =
    for (theirs <- entries.read(epoch).map(_.table.partitions) if theirs != n) {
      throw BinshiftException("ANOTHER_RUN", "checkpoint" -> query.resolvedCheckpointRoot).configuration(
        s"epoch $epoch was begun with $theirs partitions, and this run has $n: another run may be in the midst of it; stop the " +
          s"other run, and start with $theirs partitions or with a new checkpoint")
    }

  private def requireTable(entry: RoutingEntry, epoch: Long, n: Int, layout: Layout): Unit =
    if (entry.table.partitions != n || entry.table.bins != layout.bins) {
      throw BinshiftException("PARTITIONS_CHANGED", "epoch" -> epoch).configuration(
        s"epoch $epoch was logged with $n partitions, but the routing table in force since epoch " +
          s"${entry.epoch} has ${entry.table.partitions} partitions and ${entry.table.bins} of " +
          s"${layout.bins} bins; the checkpoint was changed by another tool; restore it from a copy")
    }

  /**
   * Two runs may have written the two logs of one epoch: whoever starts takes out of the log of offsets what is not
   * committed yet, and logs the epoch itself. If the commit is that of a run with other partitions, its state is not what the
   * offsets name.
   */
  private def requireIdsOf(n: => Int, epoch: Long, layout: Layout, operators: Seq[StateStoreWriter]): Unit = for {
    op <- operators if layout.operators.get(StatefulOperators.idOf(op)).exists(_.storage == Storage.Binned)
    ids <- op.getStateInfo.stateStoreCkptIds if ids.length != n
  } throw BinshiftException("ANOTHER_RUN", "checkpoint" -> query.resolvedCheckpointRoot).configuration(
    s"commits/${epoch - 1} has state of ${ids.length} partitions, and offsets/${epoch - 1} was logged with $n: two runs of query " +
      s"${query.id} wrote epoch ${epoch - 1}; stop the other run, and take epochs from ${epoch - 1} on out of the logs of offsets " +
      "and commits")

  /** In this order: `layout.json` is there only once all else is, so that a start that is cut short begins anew. */
  def write(opening: Opening): Unit = {
    val isLayoutNew = !opening.stored.contains(opening.layout)
    val isBegun = isLayoutNew || opening.isEntryNew
    if (isBegun && opening.stored.isDefined) Layout.delete(dir)
    opening.void.foreach(entries.forget)
    opening.undecided.foreach(entries.setAside)
    Faults.at("run.begin")
    // Before the files go: a store that is still open would make them again.
    opening.run.foreach { run =>
      RunHistory.write(dir, RunHistory.read(dir).add(run))
      TakeoverEpochs.requireLogged(query, run.epoch)
    }
    opening.run.filter(_.isCleaning).foreach(delete(opening.lost, _))
    if (opening.isEntryNew || opening.isBack) entries.write(opening.entry)
    if (isBegun) Layout.write(dir, opening.layout)
    Faults.at("run.begun")
    opening.run.foreach { run =>
      TakeoverEpochs.requireLogged(query, run.epoch)
      TakeoverEpochs.requireInHistory(query, run.epoch)
    }
  }

  /** What is not of the query any more, and what a store of a run before has made since it was listed, before it could know. */
  private def delete(lost: Seq[Path], run: RunStart): Unit = {
    versions.delete(lost)
    Faults.at("run.clean")
    val late = lostOf(versions.after(run.epoch, run.epoch), run.goesOnFrom)
    // Deleting takes its time: another driver may have begun meanwhile, and what is late be of its run.
    if (late.nonEmpty) requireLast(RunHistory(Seq(run)))
    versions.delete(late)
    RunHistory.write(dir, RunHistory.read(dir).cleaned(run.runId))
  }
}

/**
 * What the first epoch of a run finds, and is to write.
 *
 * @param stored      `layout.json` as it is there
 * @param entry       the routing entry in force
 * @param void        epochs of routing entries that never came to be
 * @param isAgain     whether an earlier run has logged the epoch, or may be in the midst of it
 * @param undecided   epochs of routing entries that are not in force here, and may be for another run
 * @param isBack      whether the entry in force was set aside by a run that did not know of its epoch
 * @param isStateKept whether state of the next version may be what an earlier attempt of the epoch has made of it
 * @param lost        files of state that is not of the query any more
 * @param history     of the runs before, to which `run` is added
 */
private[binshift] final case class Opening(
    layout: Layout,
    stored: Option[Layout],
    entry: RoutingEntry,
    isEntryNew: Boolean,
    void: Seq[Long],
    isAgain: Boolean,
    isStateKept: Boolean,
    undecided: Seq[Long] = Nil,
    isBack: Boolean = false,
    lost: Seq[Path] = Nil,
    history: RunHistory = RunHistory(Nil),
    run: Option[RunStart] = None)
