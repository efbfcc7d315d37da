package org.apache.spark.sql.binshift

import java.util.UUID
import java.util.concurrent.ConcurrentHashMap

import org.apache.hadoop.fs.Path

import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.streaming.operators.stateful.StateStoreWriter
import org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution
import org.apache.spark.sql.execution.streaming.state.binshift._

/**
 * Decides which routing table is in force at each epoch of one run of a query.
 *
 * While epoch e is planned (`enter`), the step that is due at e+1, if any, is prepared: first its
 * routing entry becomes durable, then Spark is told the number of partitions, which it logs together
 * with the offsets of e+1. A crash in between leaves an entry whose epoch never came to be with that
 * number: `enter(e+1)` of the next run compares the entry with what was logged, and takes it over or
 * deletes it. So an entry is obeyed as a whole or not at all.
 *
 * Thread-safe: the stream's thread plans, threads of the user submit and ask.
 */
private[binshift] final class QueryRouter(val query: MicroBatchExecution) {
  import QueryRouter._

  private val session: SparkSession = query.sparkSession
  private val dir = SparkInternals.controlDir(query)
  private val conf = DriverConf.of(session)
  private val entries = new RoutingEntries(dir, session, conf.entriesToRetain)
  private val requests = new RemoteRequests(query, dir)
  private val desk = new ShippingDesk(query, dir)
  private val stateRoot = new Path(query.resolvedCheckpointRoot, "state")
  private val retired = new RetiredPartitions(stateRoot.toString, dir.hadoopConf)
  private val scheduler = new StepScheduler(query, dir, desk, retired, conf.maxEpochsToWait)

  private var layout: Option[Layout] = Layout.read(dir)
  /** The epoch planned last in this run. */
  private var planned: Option[Long] = None
  /** At first the table as an earlier run left it, for clients that ask before this run plans an epoch. */
  private var tables = TablesInForce(restored())
  /** The operators of the epoch planned last. */
  private var operators = Seq.empty[StateStoreWriter]
  /** The bins that have another owner at the epoch planned last than at the one before. */
  private var arriving = Set.empty[Int]
  /** What the jobs of the epoch planned last carry of shipping. */
  private var shippingHint = ""

  /** What a client may know of the query's routing; see [[Gateway]]. */
  def snapshot(): RouterSnapshot = synchronized {
    RouterSnapshot(planned, tables, scheduler.underWay, scheduler.ended)
  }

  /** The newest entries of committed epochs, oldest first. */
  def history(limit: Int = Int.MaxValue): Seq[RoutingEntry] =
    entries.upTo(SparkInternals.committedEpoch(query), limit)

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
    val known = layoutFor(epoch, n, streamSession)
    if (!planned.contains(epoch)) {
      val previous = tables.current.filter(_ => planned.isDefined)
      if (planned.isEmpty) begin(epoch)
      val entry = entryFor(epoch, n, known)
      if (planned.isEmpty || entry.epoch == epoch) changePartitions(n, previous, streamSession)
      if (entry.epoch == epoch && epoch > 0 && info.stateStoreCkptIds.isDefined) CheckpointIds.keep(dir, epoch)
      arriving = previous.fold(Set.empty[Int])(_.table.movedIn(entry.table))
      tables = TablesInForce(Some(entry))
      planned = Some(epoch)
      if (conf.areRequestsServed) requests.serve(this, epoch)
      prepare(entry, epoch + 1)
      if (tables.scheduled.isEmpty) retired.claim(n)
      if (epoch % EpochsBetweenCleaning == 0) cleanUp(epoch)
    }
    val entry = tables.current.get
    val before = if (entry.epoch == epoch) entries.before(epoch) else None
    val hint = RoutingHint(query.runId.toString, epoch, entry.epoch, before)
    Epoch(known, entry.table, arriving, hint, shippingHint)
  }

  /** Accepts a plan, or throws before anything has changed. */
  def submit(
      planJson: String, optionsJson: String, id: String = UUID.randomUUID().toString): Migration = synchronized {
    finishIfDone()
    scheduler.submit(id, planJson, optionsJson, layout.getOrElse(throw notPlannedYet()),
      tables.current.getOrElse(throw notPlannedYet()), planned)
  }

  /** Schedules no further step; one that is durable already still takes effect. */
  def cancel(id: String): Unit = synchronized {
    scheduler.cancel(id)
    finishIfDone()
  }

  /** Whether the last step of `m` has been committed, or it is cancelled and no step is in flight. */
  def isOver(m: Migration): Boolean = synchronized(scheduler.isOver(m, tables))

  /** Bins that the next step waits for, if it waits for copies. */
  def binsAwaited(m: Migration): Option[Long] = synchronized(scheduler.binsAwaited(m, tables))

  /** Forgets the migration once it is over. */
  def finishIfDone(): Unit = synchronized(scheduler.finishIfDone(tables))

  /** Where the partitions of the binned operators are. */
  def placement(): PlacementSnapshot = synchronized {
    Placement.snapshot(session, binned, tables.current.map(_.table.partitions).getOrElse(0))
  }

  /** Called when the query has ended. */
  def close(): Unit = synchronized(desk.close())

  private def restored(): Option[RoutingEntry] = for {
    logged <- SparkInternals.lastLogged(query)
    n <- logged.partitions
    entry <- entries.at(logged.epoch + 1).filter(e => e.epoch <= logged.epoch || e.table.partitions == n)
      .orElse(entries.at(logged.epoch))
  } yield entry

  private def layoutFor(epoch: Long, n: Int, conf: SparkSession): Layout = {
    val setting = new BinsSetting(conf)
    val takeOver = TakeOvers.of(query.runId).filter(_ => planned.isEmpty)
    takeOver.foreach { at =>
      start(epoch, n, setting.layoutOf(operators, n).copy(takenOverAt = Some(at.epoch)))
      TakeOvers.switchProvider(at, query, conf)
    }
    if (epoch == 0 && planned.isEmpty && takeOver.isEmpty) start(epoch, n, setting.layoutOf(operators, n))
    val known = layout.getOrElse(throw BinshiftException.configuration(
      s"${dir.path} has no ${Layout.File}, though the checkpoint is at epoch $epoch: its state was " +
        "not written by binshift, or the directory was removed; start with a new checkpoint or restore it"))
    setting.requireThatOf(known)
    known
  }

  /**
   * At the first epoch of the run: what earlier runs made of later epochs is not of the query any more. Nor is what they
   * made of this one, if it has been logged anew.
   */
  private def begin(epoch: Long): Unit = {
    val isAgain = QueryStarts.lastLogged(query.runId).contains(epoch)
    val goesOnFrom = if (isAgain) epoch + 1 else epoch
    val versions = new LostVersions(stateRoot, dir.hadoopConf)
    val lost = versions.after(goesOnFrom, epoch)
    // In this order: state of another run that is still alive would be there only after its epoch was logged.
    SparkInternals.requireNewest(query, epoch)
    entries.dropAfter(epoch)
    // Before the files go: a store that is still open would make them again.
    RunHistory.write(dir, RunHistory.read(dir).add(RunStart(query.runId.toString, goesOnFrom)))
    versions.delete(lost)
  }

  /** Nothing binned is committed: whatever a run that was cut short has left is replaced. */
  private def start(epoch: Long, n: Int, fresh: Layout): Unit = {
    entries.deleteAll()
    Layout.write(dir, fresh)
    entries.write(RoutingEntry(epoch, RoutingTable.initial(fresh.bins, n), None, System.currentTimeMillis()))
    layout = Some(fresh)
  }

  /** The entry in force at `epoch`, which Spark has logged with `n` partitions. */
  private def entryFor(epoch: Long, n: Int, known: Layout): RoutingEntry = {
    val candidate = if (planned.isEmpty) entries.at(epoch) else tables.scheduled.orElse(tables.current)
    val entry = candidate.filterNot(e => e.epoch == epoch && e.table.partitions != n).orElse {
      entries.delete(epoch)
      entries.at(epoch)
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

  /** Makes the table of epoch `next` durable, and tells Spark its partitions, if it differs from `now`. */
  private def prepare(now: RoutingEntry, next: Long): Unit = {
    finishIfDone()
    scheduler.takeVacating().foreach(vacate(now.table, _))
    // The epoch that takes the state over reads each partition where Spark's provider has left it.
    val mayChange = !layout.flatMap(_.takenOverAt).exists(next <= _)
    Option.when(mayChange)(scheduler.advance(now, next)).flatten.foreach { entry =>
      entries.write(entry)
      SparkInternals.setNextPartitions(query, entry.table.partitions)
      tables = tables.copy(scheduled = Some(entry))
    }
    shippingHint = desk.hint(next - 1, scheduler.awaitedStep(tables, next), tables.stepAt(next).isDefined)
  }

  /** Partitions without bins leave an executor that is to be removed. */
  private def vacate(table: RoutingTable, executor: String): Unit = {
    val empty = (0 until table.partitions).filterNot(table.assignment.toSet)
    binned.foreach(Placement.vacate(session, _, empty, executor))
  }

  /** What else follows the number of partitions, at the first epoch that has it. */
  private def changePartitions(n: Int, previous: Option[RoutingEntry], conf: SparkSession): Unit = {
    for (before <- previous.map(_.table.partitions); op <- binned) {
      Placement.retire(conf, op, n until before)
      Placement.place(conf, op, before until n, scheduler.placeOn)
    }
    operators.foreach(SparkInternals.updateOperatorMetadata(conf, _))
  }

  private def cleanUp(epoch: Long): Unit =
    retired.clean(binned.map(op => StatefulOperators.idOf(op) -> op.stateStoreNames).toMap,
      epoch - session.sessionState.conf.minBatchesToRetain)

  /** The operators whose state follows the routing table. */
  private def binned: Seq[StateStoreWriter] = operators.filter { op =>
    layout.flatMap(_.operators.get(StatefulOperators.idOf(op))).exists(_.storage == Storage.Binned)
  }

  private def notPlannedYet(): BinshiftException = BinshiftException.migration(
    s"query ${query.id} has not planned its first epoch, so it has no routing table yet; feed it data " +
      "first, for example with query.processAllAvailable()")
}

private object QueryRouter {
  private val EpochsBetweenCleaning = 20
}

/**
 * What `enter` hands to the rule: the facts and the table of the epoch that is being planned.
 *
 * @param arriving bins that have a new owner at this epoch; none, for all it matters, at the first of a run
 */
private[binshift] final case class Epoch(
    layout: Layout, table: RoutingTable, arriving: Set[Int], hint: RoutingHint, shippingHint: String)

private[binshift] final case class RouterSnapshot(
    planned: Option[Long],
    tables: TablesInForce,
    migration: Option[Migration],
    outcomes: Seq[MigrationOutcome])

/** The routers of this driver, one per run; those of runs that ended go when the next one is made. */
private[binshift] object QueryRouters {
  private val routers = new ConcurrentHashMap[UUID, QueryRouter]()

  def of(query: MicroBatchExecution): QueryRouter = Option(routers.get(query.runId)).getOrElse {
    routers.values.removeIf(r => !r.query.isActive)
    routers.computeIfAbsent(query.runId, _ => new QueryRouter(query))
  }

  def close(runId: UUID): Unit = Option(routers.get(runId)).foreach(_.close())
}
