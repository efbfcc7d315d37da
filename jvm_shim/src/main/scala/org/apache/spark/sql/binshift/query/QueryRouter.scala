package org.apache.spark.sql.binshift.query

import java.util.UUID

import org.json4s.jackson.JsonMethods.{compact, render}

import org.apache.spark.sql.binshift.internals.{CommittedEpoch, QueryFailure, SparkInternals}
import org.apache.spark.sql.binshift.migration._
import org.apache.spark.sql.binshift.realtime.{EpochProtocol, RealTimeMode}
import org.apache.spark.sql.binshift.retention.{Housekeeping, RunEnd, SavepointMaker}
import org.apache.spark.sql.binshift.routing.{EntryInForce, Epoch, PlannedEpoch, RoutingEntries, RunState, StatefulOperators, TablesInForce}
import org.apache.spark.sql.binshift.statistics.{QueryStatistics, StatisticsSnapshot}
import org.apache.spark.sql.binshift.stock.TakeoverEpochs
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.streaming.operators.stateful.StateStoreWriter
import org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution
import org.apache.spark.sql.execution.streaming.state.binshift.{BinshiftException, OrWarn, Trace}
import org.apache.spark.sql.execution.streaming.state.binshift.checkpoint._
import org.apache.spark.sql.execution.streaming.state.binshift.routing.{RoutingEntry, RoutingHint}
import org.apache.spark.util.Utils

/**
 * Decides which routing table is in force at each epoch of one run of a query.
 *
 * While epoch e is planned (`enter`), it prepares the step that is due at e + 1, if any. First the step's routing entry becomes
 * durable. Then Spark is told the number of partitions and the name of the entry, which it logs together with the offsets of e +
 * 1. After a crash in between, the entry is named nowhere; the next run either uses it as a whole or ignores it. Nothing is
 * prepared while an epoch is repeated that an earlier run has logged, because that run may still be alive and have prepared the
 * next epoch.
 *
 * Thread-safe: the stream's thread plans, and threads of the user submit and ask.
 */
private[binshift] final class QueryRouter(val query: MicroBatchExecution) extends OrWarn {
  /** Has the settings as of the start of the query. The user's own session may change afterwards. */
  private val session: SparkSession = query.sparkSessionForStream
  private val dir = SparkInternals.controlDir(query)
  private val conf = DriverConf.of(session)
  private val entries = new RoutingEntries(dir)
  val protocol: EpochProtocol = RealTimeMode.protocolOf(query)
  private val first = new FirstEpoch(query, dir, entries, protocol)
  private val requests = Option.when(conf.areRequestsServed)(
    new RemoteRequests(query, dir, this, conf.requestsIntervalMs, conf.requestsSecret))
  private val shipments = new ShipmentCoordinator(query, dir)
  // Read before anything is started that would have to be closed, because the files may be damaged.
  private val left = PlannedMigration.read(dir).headOption
  /** Operators whose keys change on their way to their state, so that no bins may move. */
  private var changedKeys = ChangedKeys.read(dir)
  private val run = new RunState(PlannedEpoch(Layout.read(dir), TablesInForce(restored())))

  val place: RunPlace = new RunPlace(query, run, dir, protocol)
  val savepoints: SavepointMaker = new SavepointMaker(query, run, dir)
  private val housekeeping = new Housekeeping(query, run, dir, entries, conf.entriesToRetain)
  val relocation: Relocation = new Relocation(
    query, run, conf.maxEpochsToWait, conf.evacuates, housekeeping.sources.isLost, standbys, protocol.isRealTime)
  val standbys: Option[Standbys] = Option.when(Standbys.arePossible(query, protocol.isRealTime, areWanted = conf.standbys > 0))(
    new Standbys(query, conf.standbys, conf.standby, relocation))
  val ownExecutors: OwnExecutors = new OwnExecutors(
    query, run, relocation, () => QueryRouters.activeBut(this).find(_.ownExecutors.areOurs).map(_.query.id.toString),
    () => executorsInUse ++ OtherQueries.executorsInUse(this))
  val audits: Audits = new Audits(query, conf.auditedBins)
  private val watch = Option.when(conf.evacuates)(new ExecutorWatch(
      s"query ${query.id}", () => relocation.isEvacuationDue, () => run.synchronized(if (!isClosed) relocation.evacuate())))
  private val changes = new PartitionChanges(query, run, relocation, shipments, protocol)
  val deliveries: Deliveries = new Deliveries(query, run, protocol)
  val scheduler: StepScheduler = new StepScheduler(query, run, dir, left, shipments, housekeeping.retired,
    new StepSources(housekeeping.sources), relocation, deliveries, protocol, conf.maxEpochsToWait, () => place.isTaken)

  /** The bins that have another owner at the epoch planned last than at the one before. */
  private var arriving = Set.empty[Int]
  /** The announcement of shipping orders that the jobs of the epoch planned last carry. */
  private var shippingHint = ""
  private var isClosed = false

  /** The epoch planned last, and its table. Needs no lock. */
  def now: PlannedEpoch = run.now

  /** True if this run has planned an epoch. Needs no lock. */
  def hasPlanned: Boolean = run.now.epoch.isDefined

  /** The state of the query's routing, for clients. A migration that is over is no longer under way. */
  def snapshot(): RouterSnapshot = run.synchronized {
    scheduler.finishIfDone()
    RouterSnapshot(run.now.epoch, run.now.tables, scheduler.underWay, scheduler.ended)
  }

  /** The newest entries of committed epochs, oldest first. */
  def history(limit: Int = Int.MaxValue): Seq[RoutingEntry] =
    run.now.tables.current.fold(Seq.empty[RoutingEntry]) { now =>
      val committed = CommittedEpoch.of(query)
      // Reads one entry more, because the newest one may belong to an epoch that isn't committed.
      entries.upTo(now, if (limit < Int.MaxValue) limit + 1 else limit).filter(_.epoch <= committed).take(limit).reverse
    }

  /** The entries of committed epochs of migrations that followed each other, oldest first; reads no older ones. */
  def historyOf(migrations: String*): Seq[RoutingEntry] = {
    val committed = CommittedEpoch.of(query)
    run.now.tables.current.fold(Seq.empty[RoutingEntry])(entries.of(migrations.toSet, _).filter(_.epoch <= committed))
  }

  /**
   * Enters the epoch that is being planned: returns its table, and prepares the next epoch.
   *
   * Called on the stream's thread for each batch, before any of its tasks runs.
   *
   * @param operators operators of the plan; all carry the same epoch and number of partitions
   */
  def enter(streamSession: SparkSession, operators: Seq[StateStoreWriter]): Epoch = run.synchronized {
    run.become(_.copy(operators = operators))
    val info = operators.head.getStateInfo
    val epoch = info.storeVersion
    val n = info.numPartitions
    if (!run.now.epoch.contains(epoch)) {
      audits.requireNone()
      val isFirst = !hasPlanned
      val previous = run.now.tables.current.filterNot(_ => isFirst)
      val (entry, isAgain) = if (isFirst) begin(epoch, n, streamSession) else (next(epoch, n), false)
      changes.enter(epoch, n, entry, previous.map(_.table.partitions), scheduler.placeOn, streamSession)
      ownExecutors.enter()
      relocation.enter(epoch)
      if (entry.epoch == epoch && epoch > 0 && run.now.hasIds) CheckpointIds.keep(dir, epoch)
      arriving = previous.fold(Set.empty[Int])(_.table.movedIn(entry.table))
      if (entry.epoch == epoch) previous.foreach(p => audits.expect(p.table, entry, run.now.stores))
      run.become(_.copy(
          tables = TablesInForce(Some(entry)), epoch = Some(epoch), isAgain = isAgain, loggedAtMs = protocol.loggedAtMs))
      if (isFirst) changedKeys.foreach(c => logWarning(s"query ${query.id}: ${c.described}; its partitions cannot change"))
      // If the epoch is repeated, the requests that wait are left alone for now: another run may be alive, and serve them.
      if (isFirst) requests.foreach(_.start(servesNow = !place.mayRunAgain(run.now)))
      prepare(entry, epoch + 1)
      changes.retire(streamSession)
      housekeeping.enter(epoch, entry)
      standbys.foreach(_.enter(run.now, arriving))
      relocation.leaveLost()
      if (Trace.isOn) trace(epoch, n, entry)
    }
    val now = run.now
    val entry = now.tables.current.get
    val hint =
      RoutingHint(query.runId.toString, epoch, entry.name, now.loggedAtMs, housekeeping.sources.snapshotsWanted(epoch))
    Epoch(now.layout.get, entry.table, arriving, shipments.onTheWay(epoch), hint, shippingHint,
      isStepNext = now.tables.scheduled.isDefined)
  }

  private def trace(epoch: Long, n: Int, entry: RoutingEntry): Unit = {
    val now = run.now
    Trace("epoch", dir.checkpoint, "run" -> query.runId, "epoch" -> epoch, "logged_at" -> now.loggedAtMs,
      "named" -> now.loggedAtMs.flatMap(_ => query.offsetLog.get(epoch)).flatMap(SparkInternals.entryName).map(_.render),
      "entry" -> entry.name.render, "partitions" -> n, "again" -> now.isAgain,
      "scheduled" -> now.tables.scheduled.map(_.name.render),
      "ids" -> now.binned.flatMap(op => op.getStateInfo.stateStoreCkptIds.map(StatefulOperators.idOf(op) -> _)).toMap)
  }

  /** Accepts a plan, or throws before anything has changed. */
  def submit(
      planJson: String, optionsJson: String, id: String = UUID.randomUUID().toString): PlannedMigration = {
    val changed = ChangedKeys.read(dir)
    val migration = run.synchronized {
      requireOpen()
      scheduler.finishIfDone()
      changedKeys = changed
      scheduler.submit(id, planJson, optionsJson, changed)
    }
    // Waits for the check of the sources, because the first step would otherwise have to wait another epoch for it. The stream's
    // thread, which has the lock when it serves the requests that were left for a run, does not wait: its first epoch needs no check.
    if (!Thread.holdsLock(run)) housekeeping.sources.await()
    migration
  }

  /**
   * Schedules no further step. A step that is durable already still takes effect, and a migration that has finished stays
   * finished.
   */
  def cancel(id: String): Unit = run.synchronized {
    requireOpen()
    scheduler.finishIfDone()
    scheduler.cancel(id)
    scheduler.finishIfDone()
  }

  /**
   * Undoes a migration: one that is under way once its last step is over, or the last one that has changed the table. In the latter
   * case, makes requests to the checkpoint.
   */
  def rollBack(id: String): Unit = {
    val ended = new EndedMigration(query.id.toString, id, entries)
    if (Rollback.is(id)) throw ended.impossible("it is a rollback itself")
    val isUnderWay = run.synchronized {
      requireOpen()
      scheduler.finishIfDone()
      scheduler.rollBack(id)
    }
    if (!isUnderWay) {
      val now = run.now.tables.current.getOrElse(throw QueryFailure.notPlanned(query))
      val back = ended.back(now)
      submit(compact(render(back.toJson(now.epoch))), compact(render(MigrationOptions(isPrepared = !back.isOnDemand).toJson)),
        Rollback.idOf(id))
    }
  }

  /** Fails once the run is closed, because the state from which the next run continues must not change any more. */
  private def requireOpen(): Unit = if (isClosed) throw QueryFailure.ended(query)

  /** The statistics as of the last committed epoch, with the standbys of each operator; `None` before the first. */
  def statistics(): Option[StatisticsSnapshot] =
    QueryStatistics.of(query).snapshot().map(s => standbys.fold(s)(_.shownIn(s)))

  /** The executors of the partitions, over all operators. Asks Spark for each store, and needs no lock. */
  def placement(): PlacementSnapshot =
    PlacementSnapshot.of(session, run.now, ownExecutors.leaving, relocation.leaving)

  /** Executors that run partitions. Needs no lock, so that a checkpoint that doesn't answer holds up only its own query. */
  def executorsInUse: Set[String] = Placement.placesOf(session, run.now.operators, run.now.partitions).flatten.toSet

  /** Waits until a run that has ended has finished its deletes. No run of the query may begin before that. */
  def awaitDeletes(): Unit = housekeeping.retired.awaitDeletes()

  /**
   * Called when the query has ended, by each thread that hears of it. If one thing can't be closed, the others are closed all the
   * same.
   */
  def close(): Unit = {
    requests.foreach(r => Utils.tryLogNonFatalError(r.close()))
    watch.foreach(w => Utils.tryLogNonFatalError(w.close()))
    standbys.foreach(s => Utils.tryLogNonFatalError(s.close()))
    housekeeping.retired.close()
    audits.close()
    run.synchronized {
      shipments.close()
      Utils.tryLogNonFatalError(relocation.close())
      if (Trace.isOn && !isClosed) Trace("run ended", dir.checkpoint, "run" -> query.runId, "epoch" -> run.now.epoch,
        "committed" -> CommittedEpoch.ofThisRun(query))
      if (!isClosed)
        for (epoch <- run.now.epoch) orWarn(s"query ${query.id}: the end of this run could not be recorded; the next " +
          "start takes longer, because it searches for state of lost epochs")(
          RunEnd(query.runId.toString, epoch, run.now.loggedAtMs).write(dir))
      isClosed = true
    }
  }

  private def restored(): Option[RoutingEntry] = for {
    logged <- SparkInternals.lastLogged(query)
    n <- logged.partitions
    entry <- new EntryInForce(query, dir, RunHistory.read(dir), protocol.isRealTime, _ => true).shown(logged.epoch, n)
  } yield entry

  /** Begins the run with its first epoch. Nothing is written before everything has been checked that might refuse the run. */
  private def begin(epoch: Long, n: Int, streamSession: SparkSession): (RoutingEntry, Boolean) = {
    val opening = first.look(epoch, n, run.now.operators, streamSession)
    first.write(opening)
    TakeoverEpochs.of(query.runId).foreach(TakeoverEpochs.switchProvider(_, query, streamSession))
    protocol.begin(() => due())
    run.become(_.copy(layout = Some(opening.layout)))
    (opening.entry, opening.isAgain)
  }

  /** The entry in force at `epoch`, which Spark has logged with `n` partitions, after the first epoch of the run. */
  private def next(epoch: Long, n: Int): RoutingEntry = {
    val entry = run.now.tables.newest.get
    if (entry.table.partitions != n) throw BinshiftException("PARTITIONS_CHANGED", "epoch" -> epoch).configuration(
      s"epoch $epoch was logged with $n partitions, but the routing table in force since epoch ${entry.epoch} has " +
        s"${entry.table.partitions}; something else changed the number of partitions of query ${query.id}; start it again")
    entry
  }

  /** Makes the table of epoch `next` durable if it differs from `now`, and tells Spark its partitions. */
  private def prepare(now: RoutingEntry, next: Long): Unit = {
    scheduler.finishIfDone()
    scheduler.keepToLimits(now, next)
    cancelIfKeysChange()
    scheduler.advance(now, next).foreach { step =>
      val entry = step.after(now)
      entries.write(entry)
      schedule(Some(entry))
    }
    val tables = run.now.tables
    protocol.tell(now, tables.scheduled)
    shippingHint = shipments.hint(next - 1, scheduler.awaitedStep(next), tables.stepAt(next).isDefined)
  }

  private def schedule(entry: Option[RoutingEntry]): Unit = run.become(s => s.copy(tables = s.tables.copy(scheduled = entry)))

  /**
   * Cancels a migration once a task has found that keys change. A task of an earlier epoch has written that to the checkpoint. A
   * task of the epoch that is being planned would fail if a step came next.
   */
  private def cancelIfKeysChange(): Unit = for {
    m <- scheduler.underWay if !m.cancelled && m.plan.steps.nonEmpty && run.now.operators.exists(StatefulOperators.mayChangeKeys)
  } {
    if (changedKeys.isEmpty) changedKeys = ChangedKeys.read(dir)
    changedKeys.headOption.foreach { changed =>
      logWarning(s"query ${query.id}: migration ${m.id} is cancelled: ${changed.described}")
      scheduler.cancel(m.id)
    }
  }

  /**
   * In real-time mode, the entry for the next epoch, right before that begins. Takes the entry back if Spark wouldn't run the epoch:
   * its step is taken later, when there are enough slots, and with new copies.
   */
  private def due(): Option[RoutingEntry] = run.synchronized {
    for {
      entry <- run.now.tables.scheduled
      now <- run.now.tables.current
      reason <- protocol.reasonAgainst(entry.table.partitions, now.table.partitions, relocation.leaving)
    } {
      logWarning(s"query ${query.id}: the table of epoch ${entry.epoch} is taken back: $reason")
      entries.withdraw(entry.name)
      shipments.abandon()
      schedule(None)
    }
    run.now.tables.scheduled
  }

}

private[binshift] final case class RouterSnapshot(
    planned: Option[Long],
    tables: TablesInForce,
    migration: Option[PlannedMigration],
    outcomes: Seq[MigrationOutcome])
