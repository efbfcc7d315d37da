package org.apache.spark.sql.binshift.query

import java.util.UUID

import scala.util.control.NonFatal

import org.apache.hadoop.fs.Path
import org.json4s.jackson.JsonMethods.{compact, render}

import org.apache.spark.internal.Logging
import org.apache.spark.sql.binshift.internals.{CommittedEpoch, QueryFailure, SparkInternals, StreamLogs}
import org.apache.spark.sql.binshift.migration._
import org.apache.spark.sql.binshift.realtime.{RealTimeMode, Slots}
import org.apache.spark.sql.binshift.retention.{RetiredPartitions, RoutingPruning, RunEnd, SourceCheck}
import org.apache.spark.sql.binshift.routing.{EntryInForce, Epoch, RoutingEntries, StatefulOperators, TablesInForce}
import org.apache.spark.sql.binshift.statistics.{QueryStatistics, StatisticsSnapshot}
import org.apache.spark.sql.binshift.stock.TakeoverEpochs
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.streaming.operators.stateful.StateStoreWriter
import org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution
import org.apache.spark.sql.execution.streaming.state.{RocksDBConf, StateStoreConf}
import org.apache.spark.sql.execution.streaming.state.binshift.{BinshiftException, Trace}
import org.apache.spark.sql.execution.streaming.state.binshift.checkpoint._
import org.apache.spark.sql.execution.streaming.state.binshift.routing.{RoutingEntry, RoutingHint}
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.util.{ThreadUtils, Utils}

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
private[binshift] final class QueryRouter(val query: MicroBatchExecution) extends Logging {
  import QueryRouter._

  /** Has the settings as of the start of the query. The user's own session may change afterwards. */
  private val session: SparkSession = query.sparkSessionForStream
  private val dir = SparkInternals.controlDir(query)
  private val conf = DriverConf.of(session)
  private val entries = new RoutingEntries(dir)
  private val first = new FirstEpoch(query, dir, entries)
  private val requests = Option.when(conf.areRequestsServed)(
    new RemoteRequests(query, dir, this, conf.requestsIntervalMs, conf.requestsSecret))
  private val shipments = new ShipmentCoordinator(query, dir)
  private val stateRoot = new Path(query.resolvedCheckpointRoot, "state")
  /** Task slots of a query in real-time mode, which say how many partitions it can have. */
  val slots: Option[Slots] = RealTimeMode.slots(query)
  // Read before anything is started that would have to be closed, because the files may be damaged.
  private val left = PlannedMigration.read(dir).headOption
  private var layout: Option[Layout] = Layout.read(dir)
  /** At first the table as an earlier run left it, for clients that ask before this run plans an epoch. */
  @volatile private var tables = TablesInForce(restored())

  private val sources = new SourceCheck(
    query, stateRoot.toString, dir.hadoopConf, RocksDBConf(StateStoreConf(sqlConf)), sqlConf.minBatchesToRetain)
  private val retired = new RetiredPartitions(
    stateRoot.toString, dir.hadoopConf, RocksDBConf(StateStoreConf(sqlConf)), () => sources.lookAtAll(stores))
  private val pruning = new RoutingPruning(stateRoot, dir.hadoopConf, entries, conf.entriesToRetain)
  private val relocation = new Relocation(
    query, conf.maxEpochsToWait, op => binned.contains(op), conf.evacuates, p => standbys.toSeq.flatMap(_.of(p)),
    isRealTime = slots.isDefined)
  private val standbys: Option[Standbys] = Option.when(conf.standbys > 0 && Standbys.arePossible(query, slots.isDefined))(
    new Standbys(query, conf.standbys, conf.standby, () => relocation.leaving, (op, p) => p == 0 || !isSingle(op)))
  val ownExecutors: OwnExecutors = new OwnExecutors(
    session.sparkContext, () => QueryRouters.activeBut(this).find(_.ownExecutors.areOurs).map(_.query.id.toString),
    () => executorsOf(this +: QueryRouters.activeBut(this)))
  private val audits = new Audits(query, conf.auditedBins)
  private val watch = Option.when(conf.evacuates)(new ExecutorWatch(
      s"query ${query.id}", () => relocation.isEvacuationDue, () => synchronized(if (!isClosed) relocation.evacuate())))
  private val scheduler = new StepScheduler(
    query, dir, left, shipments, retired, new StepSources(sources, () => stores), relocation, slots, conf.maxEpochsToWait,
    () => binned.map(_.stateStoreNames.size).sum,
    () => isReplaced)
  /** Evaluated when the first epoch is planned. */
  private lazy val settings = RealTimeMode.settings(query)(() => due())

  /** Operators whose keys change on their way to their state, so that no bins may move. */
  private var changedKeys = ChangedKeys.read(dir)

  /** The epoch planned last in this run. */
  @volatile private var planned: Option[Long] = None
  /** When it was logged; `None` in real-time mode, where an epoch is logged when it ends. */
  private var loggedAtMs: Option[Long] = None
  /** True if the epoch planned last was logged by an earlier run. */
  private var isAgain = false
  /** The operators of the epoch planned last. */
  @volatile private var operators = Seq.empty[StateStoreWriter]
  /** The bins that have another owner at the epoch planned last than at the one before. */
  private var arriving = Set.empty[Int]
  /** The announcement of shipping orders that the jobs of the epoch planned last carry. */
  private var shippingHint = ""
  /** Partitions that no longer exist, but whose stores may still have to send the bins that left them. */
  private var retiring = Set.empty[Int]
  private var isClosed = false

  /** True if this run has planned an epoch. Needs no lock. */
  def hasPlanned: Boolean = planned.isDefined

  /** The state of the query's routing, for clients; see [[Gateway]]. */
  def snapshot(): RouterSnapshot = synchronized {
    RouterSnapshot(planned, tables, scheduler.underWay, scheduler.ended)
  }

  /** The newest entries of committed epochs, oldest first. */
  def history(limit: Int = Int.MaxValue): Seq[RoutingEntry] =
    tables.current.fold(Seq.empty[RoutingEntry]) { now =>
      val committed = CommittedEpoch.of(query)
      // Reads one entry more, because the newest one may belong to an epoch that isn't committed.
      entries.upTo(now, if (limit < Int.MaxValue) limit + 1 else limit).filter(_.epoch <= committed).take(limit).reverse
    }

  /** The entries of committed epochs of one migration, oldest first; reads no older ones. */
  def historyOf(migration: String): Seq[RoutingEntry] = {
    val committed = CommittedEpoch.of(query)
    tables.current.fold(Seq.empty[RoutingEntry])(entries.of(migration, _).filter(_.epoch <= committed))
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
    if (!planned.contains(epoch)) {
      audits.requireNone()
      val isFirst = planned.isEmpty
      val previous = tables.current.filterNot(_ => isFirst)
      val entry = if (isFirst) begin(epoch, n, streamSession) else next(epoch, n)
      if (!previous.exists(_.table.partitions == n)) changePartitions(n, previous, streamSession)
      // In real-time mode, a driver that was started by mistake may have changed the metadata for the epoch before.
      else if (slots.isDefined && entry.epoch == epoch - 1) correctMetadata(streamSession, isFirst = false)
      relocation.admit(ownExecutors.enter())
      relocation.enter(epoch, operators, n)
      if (entry.epoch == epoch && epoch > 0 && info.stateStoreCkptIds.isDefined) CheckpointIds.keep(dir, epoch)
      arriving = previous.fold(Set.empty[Int])(_.table.movedIn(entry.table))
      if (entry.epoch == epoch) previous.foreach(p => audits.expect(p.table, entry, binnedStores))
      tables = TablesInForce(Some(entry))
      planned = Some(epoch)
      loggedAtMs = Option.when(slots.isEmpty)(StreamLogs.plannedAtMs(query))
      if (isFirst) changedKeys.foreach(c => logWarning(s"query ${query.id}: ${c.described}; its partitions cannot change"))
      // If the epoch is repeated, the requests that wait are left alone for now: another run may be alive, and serve them.
      if (isFirst) requests.foreach(_.start(servesNow = !runsAgain))
      prepare(entry, epoch + 1)
      retire(streamSession)
      if (!isAgain)
        pruning.prune(entry, binned.map(StatefulOperators.idOf), oldestRetained(epoch), sqlConf.streamingMaintenanceInterval)
      if (tables.scheduled.isEmpty) retired.claim(n)
      if (!isAgain && epoch % EpochsBetweenCleaning == 0) {
        cleanUp(epoch)
        sources.keepWatch(stores, n, sqlConf.streamingMaintenanceInterval)
      }
      standbys.foreach(_.enter(epoch, operators, n))
      relocation.leaveLost()
      if (Trace.isOn) trace(epoch, n, entry)
    }
    val entry = tables.current.get
    val hint = RoutingHint(query.runId.toString, epoch, entry.name, loggedAtMs, sources.snapshotsWanted(stores, epoch))
    Epoch(layout.get, entry.table, arriving, shipments.onTheWay(epoch), hint, shippingHint,
      isStepNext = tables.scheduled.isDefined)
  }

  private def trace(epoch: Long, n: Int, entry: RoutingEntry): Unit = Trace("epoch", dir.checkpoint,
    "run" -> query.runId, "epoch" -> epoch, "logged_at" -> loggedAtMs,
    "named" -> Option.when(slots.isEmpty)(epoch).flatMap(query.offsetLog.get(_)).flatMap(SparkInternals.entryName).map(_.render),
    "entry" -> entry.name.render, "partitions" -> n, "again" -> isAgain, "scheduled" -> tables.scheduled.map(_.name.render),
    "ids" -> binned.flatMap(op => op.getStateInfo.stateStoreCkptIds.map(StatefulOperators.idOf(op) -> _)).toMap)

  /**
   * True if the query continues with this run, as far as is known. For that, its first epoch must be one that no run had logged
   * before, or be committed; and no other run may have taken its place. Makes a request to the checkpoint.
   */
  def isNewestRun: Boolean =
    !CommittedEpoch.isOfRunKnown(query) || synchronized(!runsAgain || planned.forall(hasCommitted)) && !isReplaced

  private def hasCommitted(epoch: Long): Boolean = CommittedEpoch.ofThisRun(query).exists(_ >= epoch)

  /**
   * True if another run may have taken the place of this one: it has begun with an epoch that this run has not committed. (A run
   * that was started by mistake begins with an epoch that this run has committed.) Spark ends this run when it tries to log an
   * epoch. Makes a request to the checkpoint.
   */
  private def isReplaced: Boolean = CommittedEpoch.isOfRunKnown(query) && planned.nonEmpty &&
    RunHistory.read(dir).after(query.runId.toString).exists(later => !hasCommitted(later.epoch))

  /** Accepts a plan, or throws before anything has changed. */
  def submit(
      planJson: String, optionsJson: String, id: String = UUID.randomUUID().toString): PlannedMigration = {
    val changed = ChangedKeys.read(dir)
    val migration = synchronized {
      requireOpen()
      finishIfDone()
      changedKeys = changed
      scheduler.submit(id, planJson, optionsJson, layout.getOrElse(throw notPlannedYet()), changed,
        tables.current.getOrElse(throw notPlannedYet()), planned)
    }
    // Waits for the check of the sources, because the first step would otherwise have to wait another epoch for it. The stream's
    // thread, which has the lock when it serves the requests that were left for a run, does not wait: its first epoch needs no check.
    if (!Thread.holdsLock(this)) sources.await()
    migration
  }

  /**
   * Schedules no further step. A step that is durable already still takes effect, and a migration that has finished stays
   * finished.
   */
  def cancel(id: String): Unit = synchronized {
    requireOpen()
    finishIfDone()
    scheduler.cancel(id)
    finishIfDone()
  }

  /**
   * Undoes a migration: one that is under way once its last step is over, or the last one that has changed the table. Makes requests
   * to the checkpoint in the latter case.
   */
  def rollBack(id: String): Unit = {
    val isUnderWay = synchronized {
      requireOpen()
      finishIfDone()
      scheduler.rollBack(id, Stopped.Asked)
    }
    if (!isUnderWay) {
      val undoing = planBack(id)
      submit(compact(render(undoing.toJson(snapshot().tables.current.fold(0L)(_.epoch)))),
        compact(render(MigrationOptions(isPrepared = !undoing.isOnDemand).toJson)), Rollback.idOf(id))
    }
  }

  /** The plan that leads back over the tables of a migration that is over. */
  private def planBack(id: String): MigrationPlan = {
    val steps = historyOf(id)
    def impossible(why: String) = BinshiftException("ROLLBACK_IMPOSSIBLE", "migration_id" -> id).migration(
      s"migration $id of query ${query.id} cannot be rolled back: $why; plan a rescale to the table that you want instead")
    if (steps.isEmpty) throw impossible("the routing log has none of its steps (any more)")
    val now = snapshot().tables.current
    if (!now.exists(_.name == steps.last.name)) throw impossible(
      s"the table has changed since, at epoch ${now.fold(0L)(_.epoch)}, by migration ${now.flatMap(_.step).fold("?")(_.migration)}")
    val before = steps.head.previous.flatMap(entries.read).getOrElse(
      throw impossible("the routing log no longer has the table from before its first step"))
    // The strategy on demand has this name in both languages.
    val strategy = steps.last.step.fold("")(_.strategy)
    val taken = steps.filterNot(_.step.exists(_.isOpening)).map(_.table)
    Rollback.plan(before.table, taken, steps.last.table, strategy, gap = 0, isOnDemand = strategy == Rollback.OnDemand)
  }

  /** True if the last step of `m` has been committed, or `m` is cancelled and no step is in flight. */
  def isOver(m: PlannedMigration): Boolean = synchronized(scheduler.isOver(m, tables))

  /** True if `m`, which is over, did only a part of what it should have done. */
  def isCancelled(m: PlannedMigration): Boolean = synchronized(scheduler.isCancelled(m, tables.stepsTaken(m.id)))

  /** Says when the next step of `m` can take effect, and what it waits for. */
  def outlook(m: PlannedMigration): Outlook = synchronized(scheduler.outlook(m, tables, planned))

  /** The epoch before which a plan that is submitted now cannot take effect, once this run has planned one. */
  def earliestEpoch(plan: MigrationPlan, isPrepared: Boolean): Option[Long] =
    synchronized(planned.flatMap(scheduler.earliestEpoch(plan, isPrepared, tables, _)))

  /** The forecast of copying for the migration, which was made when it was submitted. */
  def forecast(id: String): Option[CopyForecast] = synchronized(scheduler.forecast(id))

  def whyNotCopied(m: PlannedMigration): Option[String] = synchronized(scheduler.whyNotCopied(m))

  /** The number of partitions that should run on another executor than they do, as of the last look. */
  def misplaced: Int = synchronized(relocation.misplaced)

  /** The number of partitions that have left executors which Spark decommissions, in this run. */
  def evacuated: Long = synchronized(relocation.evacuated)

  /** The standbys of each partition, over all operators. Waits for nothing. */
  def standbyViews: Map[Int, Seq[StandbyView]] = standbys.fold(Map.empty[Int, Seq[StandbyView]])(_.views())

  /** The number of partitions that standbys took over because an executor was lost, in this run. */
  def takenOver: Long = standbys.fold(0L)(_.takenOver)

  /** The statistics as of the last committed epoch, with the standbys of each operator; `None` before the first. */
  def statistics(): Option[StatisticsSnapshot] = QueryStatistics.of(query).snapshot().map { s =>
    standbys.fold(s) { all =>
      s.copy(operators = s.operators.map { o =>
        val views = all.views(_ == o.id)
        o.copy(standbys = (0 until s.table.partitions).map(views.getOrElse(_, Nil).map(v => v.executor -> v.lag)))
      })
    }
  }

  /** The error that ends the query, if an audit has found a bin that differs. */
  def auditFailure: Option[BinshiftException] = audits.failure

  /** The results so far of the audits of a migration's steps, for steps that this run has taken. */
  def auditOf(migration: String): Option[AuditView] = audits.ofMigration(migration, isAlive)

  /** The results so far of the audits of the newest steps. */
  def auditView: Option[AuditView] = audits.all(isAlive)

  private def isAlive: String => Boolean = {
    lazy val now = Executors.of(session.sparkContext)
    now.isThere(_)
  }

  /** Forgets the migration once it is over. */
  def finishIfDone(): Unit = synchronized(scheduler.finishIfDone(tables))

  /** The executors of the partitions, over all operators. Asks Spark for each store; no epoch waits for that. */
  def placement(): PlacementSnapshot = {
    val (n, ending, leaving) =
      synchronized((tables.current.fold(0)(_.table.partitions), ownExecutors.leaving, relocation.leaving))
    val executors = Executors.of(session.sparkContext)
    PlacementSnapshot(executors.live.keys.toSeq.filterNot(ending), homes(n).map(_.toSeq.sorted),
      (executors.decommissioned ++ executors.excluded).toSeq.sorted, leaving.toSeq.sorted, executors.excluded.toSeq.sorted)
  }

  /** Executors that run partitions. Needs no lock, so that a checkpoint that doesn't answer holds up only its own query. */
  def executorsInUse: Set[String] = homes(operators.headOption.fold(0)(_.getStateInfo.numPartitions)).flatten.toSet

  private def homes(partitions: Int): IndexedSeq[Set[String]] =
    (0 until partitions).map(Placement.executorsOf(session, operators, _))

  /** Executors with partitions of the other queries of this driver. Needs no lock. */
  def executorsOfOthers: Set[String] = executorsOf(QueryRouters.activeBut(this))

  private def executorsOf(routers: Seq[QueryRouter]): Set[String] =
    routers.flatMap(_.executorsInUse).toSet ++ OtherQueries.executorsInUse(query.sparkSession)

  /**
   * Gives executors back as soon as no epoch needs them, and places no more partitions on them. Executors with partitions of any
   * query stay. Returns those that will go, as far as is known.
   */
  def giveBack(ids: Seq[String]): Seq[String] = {
    val unused = ids.filterNot(executorsOf(this +: QueryRouters.activeBut(this)))
    synchronized {
      relocation.avoid(unused)
      val kept = ownExecutors.giveBack(unused, isUnderWay = planned.exists(_ > CommittedEpoch.of(query)))
      relocation.admit(kept)
      unused.filterNot(kept)
    }
  }

  /** Waits until a run that has ended has finished its deletes. No run of the query may begin before that. */
  def awaitDeletes(): Unit = retired.awaitDeletes()

  /**
   * Called when the query has ended, by each thread that hears of it. If one thing can't be closed, the others are closed all the
   * same.
   */
  def close(): Unit = {
    requests.foreach(r => Utils.tryLogNonFatalError(r.close()))
    watch.foreach(w => Utils.tryLogNonFatalError(w.close()))
    standbys.foreach(s => Utils.tryLogNonFatalError(s.close()))
    retired.close()
    audits.close()
    synchronized {
      shipments.close()
      Utils.tryLogNonFatalError(relocation.close())
      if (Trace.isOn && !isClosed) Trace("run ended", dir.checkpoint, "run" -> query.runId, "epoch" -> planned,
        "committed" -> CommittedEpoch.ofThisRun(query))
      if (!isClosed) for (epoch <- planned)
        try RunEnd(query.runId.toString, epoch, loggedAtMs).write(dir)
        catch {
          case NonFatal(e) => logWarning(
              s"query ${query.id}: the end of this run could not be recorded; the next start takes longer, because it " +
                "searches for state of lost epochs", e)
        }
      isClosed = true
    }
  }

  /**
   * True if another run may be in the middle of the epoch. In real-time mode, that may be so at the first epoch of each run, so
   * it doesn't count.
   */
  private def runsAgain: Boolean = isAgain && slots.isEmpty

  /** Fails once the run is closed, because the state from which the next run continues must not change any more. */
  private def requireOpen(): Unit = if (isClosed) throw QueryFailure.ended(query)

  private def restored(): Option[RoutingEntry] = for {
    logged <- SparkInternals.lastLogged(query)
    n <- logged.partitions
    entry <- new EntryInForce(query, dir, RunHistory.read(dir), slots.isDefined, _ => true).shown(logged.epoch, n)
  } yield entry

  /** Begins the run with its first epoch. Nothing is written before everything has been checked that might refuse the run. */
  private def begin(epoch: Long, n: Int, streamSession: SparkSession): RoutingEntry = {
    val opening = first.look(epoch, n, operators, streamSession)
    first.write(opening)
    TakeoverEpochs.of(query.runId).foreach(TakeoverEpochs.switchProvider(_, query, streamSession))
    layout = Some(opening.layout)
    isAgain = opening.isAgain
    opening.entry
  }

  /** The entry in force at `epoch`, which Spark has logged with `n` partitions, after the first epoch of the run. */
  private def next(epoch: Long, n: Int): RoutingEntry = {
    isAgain = false
    val entry = tables.scheduled.orElse(tables.current).get
    if (entry.table.partitions != n) throw BinshiftException("PARTITIONS_CHANGED", "epoch" -> epoch).configuration(
      s"epoch $epoch was logged with $n partitions, but the routing table in force since epoch ${entry.epoch} has " +
        s"${entry.table.partitions}; something else changed the number of partitions of query ${query.id}; start it again")
    entry
  }

  /** Makes the table of epoch `next` durable if it differs from `now`, and tells Spark its partitions. */
  private def prepare(now: RoutingEntry, next: Long): Unit = {
    finishIfDone()
    cancelIfKeysChange()
    scheduler.advance(now, next, isAgain, layout.flatMap(_.takenOverAt)).foreach { step =>
      val entry = step.after(now)
      entries.write(entry)
      tables = tables.copy(scheduled = Some(entry))
    }
    settings.tell(now, tables.scheduled)
    shippingHint = shipments.hint(next - 1, scheduler.awaitedStep(tables, next), tables.stepAt(next).isDefined)
  }

  /**
   * Cancels a migration once a task has found that keys change. A task of an earlier epoch has written that to the checkpoint. A
   * task of the epoch that is being planned would fail if a step came next.
   */
  private def cancelIfKeysChange(): Unit =
    for (m <- scheduler.underWay if !m.cancelled && m.plan.steps.nonEmpty && operators.exists(StatefulOperators.mayChangeKeys)) {
      if (changedKeys.isEmpty) changedKeys = ChangedKeys.read(dir)
      changedKeys.headOption.foreach { changed =>
        logWarning(s"query ${query.id}: migration ${m.id} is cancelled: ${changed.described}")
        scheduler.cancel(m.id)
      }
    }

  /** In real-time mode, the entry for the next batch. Asked for right before the batch begins. */
  private def due(): Option[RoutingEntry] = synchronized {
    for {
      entry <- tables.scheduled
      now <- tables.current
      reason <- slots.flatMap(_.reasonAgainst(entry.table.partitions, now.table.partitions, relocation.leaving))
    } withdraw(entry, reason)
    tables.scheduled
  }

  /**
   * Takes back an entry whose epoch nobody has begun. Its step is taken later, when there are enough slots, and with new copies.
   */
  private def withdraw(entry: RoutingEntry, reason: String): Unit = {
    logWarning(s"query ${query.id}: the table of epoch ${entry.epoch} is taken back: $reason")
    entries.withdraw(entry.name)
    shipments.abandon()
    tables = tables.copy(scheduled = None)
  }

  /** Adapts placement and metadata to a new number of partitions, at the first epoch that has it. */
  private def changePartitions(n: Int, previous: Option[RoutingEntry], conf: SparkSession): Unit = {
    previous.map(_.table.partitions).foreach { before =>
      retiring = (retiring ++ (n until before)).filter(_ >= n)
      Placement.place(conf, query.id, binned, before until n, scheduler.placeOn, relocation.leaving)
    }
    correctMetadata(conf, isFirst = planned.isEmpty)
  }

  /** Lets executors close the stores of partitions that no longer exist, which ends their sending. */
  private def retire(conf: SparkSession): Unit = if (retiring.nonEmpty) {
    val (sending, idle) = retiring.partition(shipments.sending)
    binned.foreach(Placement.retire(conf, _, idle))
    retiring = sending
  }

  private def correctMetadata(conf: SparkSession, isFirst: Boolean): Unit = {
    val epoch = operators.head.getStateInfo.storeVersion
    val logged = if (slots.isDefined) epoch - 1 else epoch
    ThreadUtils.parmap(operators, "binshift-operator-metadata", operators.size)(
      SparkInternals.updateOperatorMetadata(conf, _, logged, isFirst))
  }

  private def cleanUp(epoch: Long): Unit =
    retired.clean(namesOfStores, oldestRetained(epoch), epoch, operators.head.getStateInfo.stateStoreCkptIds.isDefined)

  private def namesOfStores: Map[Long, Seq[String]] =
    binned.map(op => StatefulOperators.idOf(op) -> op.stateStoreNames).toMap

  /**
   * The stores whose bins move; `None` before this run has planned an epoch. If a checkpoint
   * changes its format, the version that this run loads first has no ids in its file names, and later versions have.
   */
  private def stores: Option[SourceCheck.Stores] = operators.headOption.filter(_ => layout.isDefined).map { op =>
    val (began, formatHasIds) = (planned, sqlConf.stateStoreCheckpointFormatVersion >= 2)
    val hadIds = op.getStateInfo.stateStoreCkptIds.isDefined
    SourceCheck.Stores(namesOfStores, version => formatHasIds && (hadIds || began.exists(_ < version)))
  }

  private def oldestRetained(epoch: Long): Long = epoch - sqlConf.minBatchesToRetain

  private def sqlConf: SQLConf = session.sessionState.conf

  /** The operators whose state follows the routing table. */
  private def binned: Seq[StateStoreWriter] = operators.filter { op =>
    layout.flatMap(_.operators.get(StatefulOperators.idOf(op))).exists(_.storage == Storage.Binned)
  }

  /** The stores that each bin has rows in, by operator. */
  private def binnedStores: Seq[(Long, String)] = for ((operator, names) <- namesOfStores.toSeq; store <- names)
    yield operator -> store

  /**
   * The reasons why new owners would wait for whole bins, rather than fetch single rows, if a plan is on demand. There are none
   * if all operators whose bins move look state up by the keys of their rows, and these keys are known before the rows are
   * processed.
   */
  def whyWholeBins: Seq[String] = synchronized {
    if (planned.isEmpty) Seq("this run has planned no epoch, so that its operators are not known")
    else if (slots.isDefined) Seq("the query is in real-time mode")
    else if (!scheduler.isShippable) scheduler.whyNotShippable.toSeq
    else binned.filterNot(StatefulOperators.looksUpByKey).map(op =>
      s"operator ${StatefulOperators.idOf(op)} (${op.shortName}) looks through its state in each epoch")
  }

  /** True if all rows of an operator are in its partition 0. */
  private def isSingle(op: StateStoreWriter): Boolean =
    layout.flatMap(_.operators.get(StatefulOperators.idOf(op))).exists(_.storage == Storage.Single)

  /** The error that explains why there is no table yet. */
  def notPlannedYet(): BinshiftException = QueryFailure.notPlanned(query)
}

private object QueryRouter {
  private val EpochsBetweenCleaning = 20
}

private[binshift] final case class RouterSnapshot(
    planned: Option[Long],
    tables: TablesInForce,
    migration: Option[PlannedMigration],
    outcomes: Seq[MigrationOutcome])
