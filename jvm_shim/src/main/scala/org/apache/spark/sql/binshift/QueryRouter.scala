package org.apache.spark.sql.binshift

import java.util.UUID
import java.util.concurrent.ConcurrentHashMap

import org.apache.hadoop.fs.Path

import org.apache.spark.internal.Logging
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.streaming.operators.stateful.StateStoreWriter
import org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution
import org.apache.spark.sql.execution.streaming.state.binshift._

/**
 * Decides which routing table is in force at each epoch of one run of a query, and takes the steps of
 * a migration.
 *
 * While epoch e is planned (`enter`), the step that is due at e+1, if any, is prepared: first its
 * routing entry becomes durable, then Spark is told the number of partitions, which it logs together
 * with the offsets of e+1. A crash in between leaves an entry whose epoch never came to be with that
 * number: `enter(e+1)` of the next run compares the entry with what was logged, and takes it over or
 * deletes it. So an entry is obeyed as a whole or not at all.
 *
 * Thread-safe: the stream's thread plans, threads of the user submit and ask.
 */
private[binshift] final class QueryRouter(val query: MicroBatchExecution) extends Logging {
  private val session: SparkSession = query.sparkSession
  private val dir =
    ControlDir.of(new Path(query.resolvedCheckpointRoot), session.sessionState.newHadoopConf())
  private val routingLog = new RoutingLog(dir)
  private val desk = new ShippingDesk(query, dir)
  private val retired = new RetiredPartitions(
    new Path(query.resolvedCheckpointRoot, "state").toString, session.sessionState.newHadoopConf())

  private var layout: Option[Layout] = None
  /** The epoch planned last in this run. */
  private var planned: Option[Long] = None
  /** The entry in force at the epoch planned last, or at the next one if there is none yet. */
  private var current: Option[RoutingEntry] = None
  /** The entry that is durable for the epoch after the one planned last. */
  private var scheduled: Option[RoutingEntry] = None
  private var migration: Option[Migration] = None
  /** How the latest migrations of this run ended, for clients that still ask for them. */
  private var outcomes: Seq[MigrationOutcome] = Nil
  /** The operators of the epoch planned last. */
  private var operators = Seq.empty[StateStoreWriter]
  /** The executor that partitions without bins leave at the next epoch. */
  private var vacating: Option[String] = None
  /** Epochs that the next step has been waiting for its copies. */
  private var waited = 0
  /** What the jobs of the epoch planned last carry of shipping. */
  private var shippingHint = ""
  /** The epochs of the routing log, ascending; read once and then kept up with what is written here. */
  private var epochs: Seq[Long] = Nil

  restore()

  /** What a client may know of the query's routing; see [[Gateway]]. */
  def snapshot(): RouterSnapshot = synchronized {
    RouterSnapshot(planned, current, scheduled, migration, outcomes)
  }

  def history(): Seq[RoutingEntry] = {
    val committed = SparkInternals.committedEpoch(query)
    routingLog.epochs.filter(_ <= committed).flatMap(routingLog.read)
  }

  /**
   * Enters the epoch that is being planned: returns its table, and prepares the next epoch.
   *
   * Called on the stream's thread for each batch, before any of its tasks runs.
   *
   * @param planOperators operators of the plan; all carry the same epoch and number of partitions
   */
  def enter(streamSession: SparkSession, planOperators: Seq[StateStoreWriter]): Epoch = synchronized {
    operators = planOperators
    val info = operators.head.getStateInfo
    val epoch = info.storeVersion
    val n = info.numPartitions
    val known = layoutFor(epoch, n, streamSession, operators)
    if (!planned.contains(epoch)) {
      val previous = current.filter(_ => planned.isDefined)
      if (planned.isEmpty) dropEntriesAfter(epoch)
      val entry = entryFor(epoch, n, known)
      if (planned.isEmpty || entry.epoch == epoch) {
        changePartitions(n, previous, streamSession, known, operators)
      }
      if (entry.epoch == epoch && epoch > 0 && info.stateStoreCkptIds.isDefined) CheckpointIds.keep(dir, epoch)
      current = Some(entry)
      scheduled = None
      planned = Some(epoch)
      prepare(epoch + 1)
      if (scheduled.isEmpty) retired.claim(n)
      if (epoch % EpochsBetweenCleaning == 0) cleanUp(epoch)
    }
    val entry = current.get
    val before = if (entry.epoch == epoch) epochs.filter(_ < epoch).lastOption else None
    Epoch(known, entry.table, RoutingHint(query.runId.toString, epoch, entry.epoch, before), shippingHint)
  }

  /** Accepts a plan, or throws before anything has changed. */
  def submit(planJson: String, optionsJson: String): Migration = synchronized {
    val facts = layout.getOrElse(throw notPlannedYet())
    val now = current.getOrElse(throw notPlannedYet())
    finishIfDone()
    migration.foreach { m =>
      throw BinshiftException.migration(
        s"migration ${m.id} is under way (${stepsTaken(m)} of ${m.plan.steps.size} steps taken); wait " +
          "for it or cancel it before you submit another plan")
    }
    val m = Migration.create(UUID.randomUUID().toString, planJson, optionsJson)
    if (m.plan.source != now.table) {
      throw BinshiftException.plan(
        s"the plan starts from a table with ${m.plan.source.partitions} partitions and " +
          s"${m.plan.source.bins} bins that is not the one in force since epoch ${now.epoch} " +
          s"(${now.table.partitions} partitions, ${now.table.bins} bins); plan again")
    }
    try m.plan.requireFitting() catch {
      case e: IllegalArgumentException => throw BinshiftException.plan(
        s"the plan does not fit: ${e.getMessage.stripPrefix("requirement failed: ")}; plan again")
    }
    m.options.startEpoch.foreach { e =>
      val earliest = planned.getOrElse(now.epoch) + 1
      if (e < earliest) {
        throw BinshiftException.plan(
          s"start_epoch $e has passed; the earliest epoch that can change is $earliest")
      }
    }
    facts.unsupported.headOption.foreach { o =>
      throw BinshiftException.unsupportedOperator(
        s"operator ${o.name} cannot migrate, since the keys of its state may differ from the columns by " +
          "which Spark distributes its rows: a typed key of another type than its column, or a timestamp " +
          "that goes through Python; the query runs on as it is")
    }
    if (m.plan.steps.isEmpty) ended(m) else {
      Migration.write(dir, m)
      migration = Some(m)
    }
    m
  }

  /** Schedules no further step; one that is durable already still takes effect. */
  def cancel(id: String): Unit = synchronized {
    migration.filter(m => m.id == id && !m.cancelled).foreach { m =>
      val cancelled = m.copy(cancelled = true)
      Migration.write(dir, cancelled)
      migration = Some(cancelled)
      finishIfDone()
    }
  }

  /** Steps of `m` whose tables are in force, or durable for the next epoch. */
  def stepsTaken(m: Migration): Int = synchronized {
    (scheduled.toSeq ++ current).flatMap(_.step).filter(_.migration == m.id).map(_.index + 1).maxOption
      .getOrElse(0)
  }

  /** Whether the last step of `m` has been committed, or it is cancelled and no step is in flight. */
  def isOver(m: Migration): Boolean = synchronized {
    val inFlight = (scheduled.toSeq ++ current)
      .filter(_.step.exists(_.migration == m.id)).map(_.epoch).maxOption
    (m.cancelled || stepsTaken(m) == m.plan.steps.size) && !desk.isFetching &&
      inFlight.forall(_ <= SparkInternals.committedEpoch(query))
  }

  /** Bins that the next step waits for, if it waits for copies. */
  def binsAwaited(m: Migration): Option[Long] = synchronized {
    Option.when(scheduled.isEmpty)(stepsTaken(m)).filter(desk.covers(m.id, _)).flatMap(desk.awaited).filter(_ > 0)
  }

  /** Called when the query has ended. */
  def close(): Unit = synchronized(desk.close())

  /** Where the partitions of the binned operators are. */
  def placement(): PlacementSnapshot = synchronized {
    val binned = operators.filter(op => layout.exists(isBinned(_, op)))
    Placement.snapshot(session, binned, current.map(_.table.partitions).getOrElse(0))
  }

  /** Forgets the migration once it is over. Once the query has ended, plan.json is its next run's. */
  def finishIfDone(): Unit = synchronized {
    migration.filter(m => query.isActive && isOver(m)).foreach(forget)
  }

  private def forget(m: Migration): Unit = {
    ended(m)
    vacating = m.options.vacate.filterNot(_ => m.cancelled)
    Migration.delete(dir)
    migration = None
  }

  private def ended(m: Migration): Unit =
    outcomes = (outcomes :+ MigrationOutcome(m.id, stepsTaken(m), m.cancelled)).takeRight(MaxOutcomes)

  /** The state as an earlier run left it, for clients that ask before this run plans its first epoch. */
  private def restore(): Unit = {
    layout = Layout.read(dir)
    migration = Migration.read(dir)
    current = for {
      logged <- SparkInternals.lastLogged(query)
      n <- logged.partitions
      entry <- routingLog.at(logged.epoch + 1).filter(e => e.epoch <= logged.epoch || e.table.partitions == n)
        .orElse(routingLog.at(logged.epoch))
    } yield entry
  }

  private def layoutFor(
      epoch: Long, n: Int, conf: SparkSession, operators: Seq[StateStoreWriter]): Layout = {
    val setting = new BinsSetting(conf)
    val takeOver = TakeOvers.of(query.runId).filter(_ => planned.isEmpty)
    takeOver.foreach { at =>
      begin(epoch, n, setting.layoutOf(operators, n).copy(takenOverAt = Some(at.epoch)))
      Migration.delete(dir)
      migration = None
      TakeOvers.switchProvider(at, query, conf)
    }
    if (epoch == 0 && planned.isEmpty) begin(epoch, n, setting.layoutOf(operators, n))
    val known = layout.getOrElse(throw BinshiftException.configuration(
      s"${dir.path} has no ${Layout.File}, though the checkpoint is at epoch $epoch: its state was " +
        "not written by binshift, or the directory was removed; start with a new checkpoint or restore it"))
    setting.requireThatOf(known)
    known
  }

  /** Nothing binned is committed: whatever a run that was cut short has left is replaced. */
  private def begin(epoch: Long, n: Int, fresh: Layout): Unit = {
    routingLog.epochs.foreach(routingLog.delete)
    Layout.write(dir, fresh)
    write(RoutingEntry(epoch, RoutingTable.initial(fresh.bins, n), None, System.currentTimeMillis()))
    layout = Some(fresh)
  }

  private val MaxOutcomes = 64
  private val EpochsBetweenCleaning = 20
  private val OpeningEpochs = 4

  /** Entries of epochs that never came to be: the log of offsets ends at `epoch`. */
  private def dropEntriesAfter(epoch: Long): Unit = {
    epochs = routingLog.epochs
    epochs.filter(_ > epoch).foreach(delete)
  }

  /** The entry in force at `epoch`, which Spark has logged with `n` partitions. */
  private def entryFor(epoch: Long, n: Int, known: Layout): RoutingEntry = {
    val candidate = if (planned.isEmpty) routingLog.at(epoch) else scheduled.orElse(current)
    val entry = candidate.filterNot(e => e.epoch == epoch && e.table.partitions != n).orElse {
      delete(epoch)
      routingLog.at(epoch)
    }.getOrElse(throw BinshiftException.configuration(
      s"${dir.path} has no routing entry at or before epoch $epoch; restore it from a copy of the checkpoint"))
    if (entry.table.partitions != n || entry.table.bins != known.bins) {
      throw BinshiftException.configuration(
        s"epoch $epoch was logged with $n partitions, but the routing table in force since epoch " +
          s"${entry.epoch} has ${entry.table.partitions} partitions and ${entry.table.bins} of " +
          s"${known.bins} bins; the checkpoint was changed by another tool; restore it from a copy")
    }
    entry
  }

  /**
   * Brings the migration on: makes the table of the next epoch durable, and tells Spark its partitions,
   * if a step is due and the copies that it needs are there.
   */
  private def prepare(next: Long): Unit = {
    finishIfDone()
    vacating.foreach(vacate)
    vacating = None
    val active = migration.filterNot(_.cancelled)
    val taken = active.map(stepsTaken).getOrElse(0)
    desk.closeOthers(active.map(m => (m.id, taken)), stepAt(next - 1))
    active.filter(m => taken < m.plan.steps.size).foreach(advance(_, taken, next))
    val due = stepAt(next)
    shippingHint = desk.hint(next - 1, due.map(_.index).getOrElse(taken), due.isDefined)
  }

  /** The step that takes effect at `epoch`, the one that is planned or the next. */
  private def stepAt(epoch: Long): Option[StepRef] =
    (scheduled.toSeq ++ current).filter(_.epoch == epoch).flatMap(_.step).find(!_.isOpening)

  /** Partitions without bins leave an executor that is to be removed. */
  private def vacate(executor: String): Unit = current.map(_.table).foreach { table =>
    val empty = (0 until table.partitions).filterNot(table.assignment.toSet)
    operators.filter(op => layout.exists(isBinned(_, op))).foreach(Placement.vacate(session, _, empty, executor))
  }

  private def advance(m: Migration, index: Int, next: Long): Unit = {
    val now = current.get
    val moves = m.plan.steps(index).moves
    val mayExist = math.max(now.table.partitions, m.plan.steps(index).partitions)
    val earliest = if (index == 0) m.options.startEpoch.getOrElse(0L) else now.epoch + 1 + m.plan.gap
    m.tableAfter(index, now.table) match {
      case _ if !retired.claim(mayExist) => // The old state of a partition is being deleted.
      case None =>
        logWarning(s"query ${query.id}: migration ${m.id} is abandoned, since its step ${index + 1} does " +
          "not fit the table in force; the checkpoint was wound back or started anew; plan again")
        forget(m.copy(cancelled = true))
      case _ if desk.isFetching => // Bins of the step before are still on their way.
      case Some(table) if table.partitions > now.table.partitions && isShippable && (m.options.isPrepared || m.isOnDemand) =>
        // New partitions are opened first, empty: copies are made for stores that are there. Opening takes
        // an epoch some time, hence not all at once.
        val each = (table.partitions - m.plan.source.partitions + OpeningEpochs - 1) / OpeningEpochs
        val partitions = math.min(now.table.partitions + math.max(each, 1), table.partitions)
        schedule(m, index - 1, next, now.table.copy(partitions = partitions), isOpening = true)
      case Some(table) if !m.options.isPrepared || m.isOnDemand || !isShippable =>
        if (next >= earliest) {
          desk.order(m.id, next, index, IndexedSeq(moves), isUrgent = true, m.isOnDemand && isShippable)
          schedule(m, index, next, table)
        }
      case Some(_) if now.epoch == next - 1 && now.step.exists(_.isOpening) => // One thing after the other.
      case Some(_) if !desk.covers(m.id, index) =>
        waited = 0
        desk.order(m.id, next, index, m.copiedTogether(index, now.table.partitions), isUrgent = false)
      case Some(table) => desk.awaited(index) match {
        case Some(0) if next >= earliest => schedule(m, index, next, table)
        case Some(n) if n > 0 && waited >= epochsToWait =>
          logWarning(s"query ${query.id}: step ${index + 1} of migration ${m.id} has waited $waited epochs for " +
            "its copies; its bins are sent at the switch")
          desk.abandon()
          desk.order(m.id, next, index, IndexedSeq(moves), isUrgent = true)
          schedule(m, index, next, table)
        case Some(n) if n > 0 => waited += 1
        case _ =>
      }
    }
  }

  private def cleanUp(epoch: Long): Unit = {
    val binned = operators.filter(op => layout.exists(isBinned(_, op)))
    retired.clean(binned.map(op => StatefulOperators.idOf(op) -> op.stateStoreNames).toMap,
      epoch - session.sessionState.conf.minBatchesToRetain)
  }

  private def schedule(
      m: Migration, index: Int, next: Long, table: RoutingTable, isOpening: Boolean = false): Unit = {
    val moves = if (isOpening) 0 else m.plan.steps(index).moves.size
    val entry = RoutingEntry(next, table,
      Some(StepRef(m.id, index, m.plan.steps.size, m.plan.strategy, moves, isOpening)), System.currentTimeMillis())
    write(entry)
    SparkInternals.setNextPartitions(query, table.partitions)
    scheduled = Some(entry)
    waited = 0
    logInfo(s"query ${query.id}: step ${index + 1} of ${m.plan.steps.size} of migration ${m.id} is " +
      s"scheduled for epoch $next ($moves bins, ${table.partitions} partitions)")
  }

  /** Copies follow the changelogs of their sources. */
  private def isShippable: Boolean =
    session.sessionState.conf.getConfString(SparkInternals.ChangelogKey, "false").toBoolean

  private def epochsToWait: Int = session.conf.getOption(BinshiftConf.MaxEpochsToWait)
    .flatMap(_.toIntOption).getOrElse(BinshiftConf.DefaultMaxEpochsToWait)

  /** What else follows the number of partitions, at the first epoch that has it. */
  private def changePartitions(
      n: Int, previous: Option[RoutingEntry], conf: SparkSession, known: Layout,
      operators: Seq[StateStoreWriter]): Unit =
    operators.foreach { op =>
      previous.map(_.table.partitions).filter(_ => isBinned(known, op)).foreach { before =>
        Placement.retire(conf, op, n until before)
        Placement.place(conf, op, before until n, migration.map(_.options.placeOn).getOrElse(Nil))
      }
      SparkInternals.updateOperatorMetadata(conf, op)
    }

  private def isBinned(known: Layout, op: StateStoreWriter): Boolean =
    known.operators.get(StatefulOperators.idOf(op)).exists(_.storage == Storage.Binned)

  private def write(entry: RoutingEntry): Unit = {
    routingLog.write(entry)
    epochs = epochs.filter(_ < entry.epoch) :+ entry.epoch
    // Neither recovery, for which Spark keeps as many batches, nor the history needs older entries.
    val kept = math.max(entriesToRetain, session.sessionState.conf.minBatchesToRetain + 2)
    epochs.dropRight(kept).foreach(delete)
  }

  private def delete(epoch: Long): Unit = {
    routingLog.delete(epoch)
    CheckpointIds.forget(dir, epoch)
    epochs = epochs.filter(_ != epoch)
  }

  private def entriesToRetain: Int = session.conf.getOption(BinshiftConf.RoutingEntriesToRetain)
    .flatMap(_.toIntOption).getOrElse(BinshiftConf.DefaultRoutingEntriesToRetain)

  private def notPlannedYet(): BinshiftException = BinshiftException.migration(
    s"query ${query.id} has not planned its first epoch, so it has no routing table yet; feed it data " +
      "first, for example with query.processAllAvailable()")
}

/** What `enter` hands to the rule: the facts and the table of the epoch that is being planned. */
private[binshift] final case class Epoch(
    layout: Layout, table: RoutingTable, hint: RoutingHint, shippingHint: String)

private[binshift] final case class RouterSnapshot(
    planned: Option[Long],
    current: Option[RoutingEntry],
    scheduled: Option[RoutingEntry],
    migration: Option[Migration],
    outcomes: Seq[MigrationOutcome])

/** @param steps steps that took effect */
private[binshift] final case class MigrationOutcome(id: String, steps: Int, cancelled: Boolean)

/** The routers of this driver, one per run; those of runs that ended go when the next one is made. */
private[binshift] object QueryRouters {
  private val routers = new ConcurrentHashMap[UUID, QueryRouter]()

  def of(query: MicroBatchExecution): QueryRouter = Option(routers.get(query.runId)).getOrElse {
    routers.values.removeIf(r => !r.query.isActive)
    routers.computeIfAbsent(query.runId, _ => new QueryRouter(query))
  }

  def close(runId: UUID): Unit = Option(routers.get(runId)).foreach(_.close())
}
