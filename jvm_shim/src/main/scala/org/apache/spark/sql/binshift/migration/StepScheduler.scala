package org.apache.spark.sql.binshift.migration

import scala.collection.immutable.ListMap

import org.apache.spark.sql.binshift.internals.{CommittedEpoch, QueryFailure, SparkInternals}
import org.apache.spark.sql.binshift.realtime.EpochProtocol
import org.apache.spark.sql.binshift.retention.RetiredPartitions
import org.apache.spark.sql.binshift.routing.RunState
import org.apache.spark.sql.binshift.statistics.QueryStatistics
import org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution
import org.apache.spark.sql.execution.streaming.state.binshift.{Faults, LogLine, OrWarn}
import org.apache.spark.sql.execution.streaming.state.binshift.checkpoint.{ChangedKeys, ControlDir}
import org.apache.spark.sql.execution.streaming.state.binshift.routing.{Delivery, RoutingEntry, RoutingTable, StepRef}

/**
 * Takes a migration through its steps: while an epoch is planned, it says which table the next epoch gets.
 *
 * A prepared migration first opens its new partitions, then has bins copied, and takes a step when the copies for it have arrived.
 * The routing log says which steps were taken. Whatever is kept here is lost with the driver, and the next one
 * makes it again. Whole partitions move to other executors before the first step, so that bins are copied to where they stay
 * ([[Relocation]]).
 *
 * Called under the lock of the run, which clients' questions take themselves.
 *
 * @param left            the migration that an earlier run has left
 * @param maxEpochsToWait epochs that a step waits for copies that make no progress
 * @param isReplaced      whether another run may have taken the place of this one; makes a request to the checkpoint
 */
private[binshift] final class StepScheduler(
    query: MicroBatchExecution, run: RunState, dir: ControlDir, left: Option[PlannedMigration], shipments: ShipmentCoordinator,
    retired: RetiredPartitions, sources: StepSources, relocation: Relocation, deliveries: Deliveries, protocol: EpochProtocol,
    maxEpochsToWait: Int, isReplaced: () => Boolean)
  extends OrWarn {
  import StepDecision._
  import StepScheduler._

  private val application = SparkInternals.applicationOf(query.sparkSession.sparkContext)
  private val admission = new PlanAdmission(query, run, dir, relocation, shipments, protocol, isReplaced)
  private var migration = Option.empty[PlannedMigration]
  /** Migrations of earlier runs whose partitions should have moved to other executors, and no longer do. */
  private var homeless = Set.empty[String]
  /** How the latest migrations of this run ended, for clients that still ask for them. */
  private var outcomes = Seq.empty[MigrationOutcome]
  /** The number of bins that could not be copied before their step was taken, for the migration under way. */
  private var uncopied = 0L
  /** The facts about the next step at the last decision. */
  private var latest = Option.empty[StepFacts]
  /** The first epoch of this run for which a step could be decided. */
  private var firstDecided = Option.empty[Long]
  @volatile private var forecasts: Option[(String, CopyForecast)] = None
  /** The latest epochs that opened partitions, and how many they opened. */
  private var opened = ListMap.empty[Long, Int]
  private val limits = new MigrationLimits
  left.foreach(goOnWith)

  def underWay: Option[PlannedMigration] = migration

  /** True if `m`, which is over, did only a part of what it should have done. */
  def isCancelled(m: PlannedMigration): Boolean = run.synchronized(isCancelled(m, run.now.tables.stepsTaken(m.id)))

  /**
   * True if `m`, which has taken `steps` steps, did less than was asked of it. A migration that was cancelled after its last step
   * was scheduled has done everything, unless partitions were on their way to other executors.
   */
  private def isCancelled(m: PlannedMigration, steps: Int): Boolean = homeless(m.id) ||
    m.cancelled && (steps < m.plan.steps.size || m.options.movesPartitions)

  def ended: Seq[MigrationOutcome] = outcomes

  /** Executors on which new partitions are to be placed, if the migration names any. */
  def placeOn: Seq[String] = migration.map(_.options.placeOn).getOrElse(Nil)

  /**
   * Accepts a plan, or throws before anything has changed.
   *
   * @param changed operators whose bins cannot move, because their keys change
   */
  def submit(id: String, planJson: String, optionsJson: String, changed: Seq[ChangedKeys]): PlannedMigration = {
    val (layout, now) = run.now.layout.zip(run.now.tables.current).getOrElse(throw QueryFailure.notPlanned(query))
    val m = admission.admitted(
      PlannedMigration.create(id, planJson, optionsJson, application), migration, layout, now, changed)
      .copy(from = Option.when(Rollback.is(id))(now.name.render))
    if (m.isIdle) remember(m, 0)
    else {
      PlannedMigration.write(dir, m)
      begin(m)
      relocation.begin(m.options)
      if (m.options.startEpoch.forall(sources.isNear(_, run.now.epoch.getOrElse(now.epoch)))) sources.begin(m)
      foresee(m)
      deliveries.whyNotCopied(m).foreach(why => logWarning(s"query ${query.id}: migration ${m.id}: $why"))
    }
    m
  }

  /** The forecast of copying that was made when the migration under way was submitted in this run. Needs no lock. */
  def forecast(id: String): Option[CopyForecast] = forecasts.filter(_._1 == id).map(_._2)

  /** Makes the forecast. If that fails, the plan is accepted all the same. */
  private def foresee(m: PlannedMigration): Unit =
    orWarn(s"query ${query.id}: cannot foresee what copying for migration ${m.id} will take") {
      forecasts = for {
        statistics <- QueryStatistics.of(query).snapshot()
        if deliveries.isAhead(m.plan, m.options.isPrepared)
        foreseen <- CopyForecast.of(m.plan, statistics, deliveries.conf)
      } yield (m.id, foreseen)
      forecasts.flatMap(_._2.tooMuch).foreach(why => logWarning(s"query ${query.id}: migration ${m.id}: $why"))
    }

  /** Takes no further step of migration `id`, and undoes none; one that is durable already still takes effect. */
  def cancel(id: String): Unit =
    migration.filter(m => m.id == id && (!m.cancelled || m.rollsBack)).foreach(stop(_, None))

  /** Undoes migration `id` if it is under way, once the last step that it has taken is over. Returns whether it is under way. */
  def rollBack(id: String): Boolean = {
    val found = migration.filter(_.id == id)
    found.filterNot(_.rollsBack).foreach(stop(_, Some(Stopped.asked(run.now.tables.stepsTaken(id)))))
    found.isDefined
  }

  private def stop(m: PlannedMigration, why: Option[Stopped]): Unit = {
    val stopped = m.copy(cancelled = true, stopped = why)
    if (!isReplaced()) PlannedMigration.write(dir, stopped)
    migration = Some(stopped)
    relocation.end(cancelled = true)
  }

  /**
   * Stops the migration under way if its deadline has passed, or its epochs take too long, and begins to undo it if that is due. A run
   * that repeats an epoch of an earlier one does neither, because that one may have gone on and taken steps that this run doesn't know.
   *
   * Called before it is looked whether keys change, so that a rollback ends as well if they do.
   */
  def keepToLimits(now: RoutingEntry, next: Long): Unit = if (early(next).isEmpty) {
    for (m <- migration if !m.cancelled) keepToLimits(m, next, run.now.tables.stepsTaken(m.id))
    for (m <- migration; why <- m.stopped if why.rollsBack) rollBackIfDue(m, why, now, run.now.tables.stepsTaken(m.id))
  }

  private def keepToLimits(m: PlannedMigration, next: Long, taken: Int): Unit = if (taken < m.plan.steps.size) {
    val now = System.currentTimeMillis()
    if (limits.isLateNow(m, now, next)) logWarning(s"query ${query.id}: migration ${m.id} goes on, although its deadline of " +
      s"${m.options.deadline.get} has passed after $taken of ${m.plan.steps.size} steps")
    for (why <- limits.stopped(m, now, next, lastEpoch(m), taken)) {
      logWarning(s"query ${query.id}: migration ${m.id} takes no further step, because ${why.why}" +
        (if (why.rollsBack) "; it is rolled back" else ""))
      stop(m, Some(why))
    }
  }

  private def rollBackIfDue(m: PlannedMigration, why: Stopped, now: RoutingEntry, taken: Int): Unit =
    if (taken > why.taken) {
      logWarning(s"query ${query.id}: migration ${m.id} is not rolled back: a run that was replaced by now wanted it after " +
        s"${why.taken} steps, and $taken are taken")
      migration = Some(m.copy(cancelled = false, stopped = None))
    } else if (isOver(m)) {
      val undoing = Rollback.of(m, taken, now)
      if (undoing.isEmpty)
        logWarning(s"query ${query.id}: migration ${m.id} is not rolled back: its steps do not lead to the table " +
          "in force; the checkpoint was wound back or started anew; plan a rescale to the table that you want")
      forget(m.copy(stopped = m.stopped.filter(_ => undoing.isDefined)), taken, undoing.filter(_.plan.steps.nonEmpty))
    }

  /** The number and the milliseconds of the last epoch, if `m` has a guard. */
  private def lastEpoch(m: PlannedMigration): Option[(Long, Long)] =
    m.options.guard.flatMap(_ => SparkInternals.tookMs(query).maxByOption(_._1))

  private def early(next: Long): Option[Reason] =
    Reason.early(next, run.now.isAgain, run.now.layout.flatMap(_.takenOverAt))

  /**
   * True if the last step of `m` has been committed and all partitions are where it wants them, or if `m` is cancelled and no step
   * is in flight.
   */
  def isOver(m: PlannedMigration): Boolean = run.synchronized {
    val tables = run.now.tables
    (m.cancelled || tables.stepsTaken(m.id) == m.plan.steps.size) && !shipments.isFetching && {
      val committed = CommittedEpoch.of(query)
      tables.newestOf(m.id).forall(_ <= committed) && (m.cancelled || relocation.isDone(committed))
    }
  }

  /**
   * Forgets the migration once it is over, unless it has to be undone ([[keepToLimits]]). If the query has ended, the migration's file
   * belongs to the next run.
   */
  def finishIfDone(): Unit = migration.filter(m => !m.rollsBack && query.isActive && isOver(m))
    .foreach(m => forget(m, run.now.tables.stepsTaken(m.id), undoing = None))

  /** Says when the next step of `m` can take effect, and what it waits for. */
  def outlook(m: PlannedMigration): Outlook = run.synchronized {
    val tables = run.now.tables
    val index = tables.stepsTaken(m.id)
    val scheduled = run.now.epoch.map(_ + 1).filter(tables.stepAt(_).exists(_.migration == m.id))
    val facts = for {
      epoch <- run.now.epoch if scheduled.isEmpty && !m.cancelled && index < m.plan.steps.size
      now <- tables.newest
      f = factsOf(m, index, now, epoch + 2)
      known = f.copy(copies = f.copies.map(_.copy(awaiting = QueryStatistics.of(query).awaiting().toSeq)))
    } yield latest.fold(known)(l => known.copy(early = l.early, obstacles = l.obstacles))
    val told = facts.filter(_ => tables.scheduled.isEmpty).flatMap(_.copies)
    Outlook(scheduled.orElse(facts.map(earliest)), facts.map(decide).collect { case Wait(reason) => reason },
      awaited = told.map(_.missing).filter(_ > 0), givenUp = uncopied + told.fold(0L)(_.givenUp))
  }

  /**
   * The first epoch at which `plan` can take effect if submitted now; `None` if a migration is under way, it has no step, or this run
   * has planned no epoch.
   */
  def earliestEpoch(plan: MigrationPlan, isPrepared: Boolean): Option[Long] = run.synchronized {
    for {
      last <- run.now.epoch if migration.isEmpty && plan.steps.nonEmpty
      now <- run.now.tables.newest
    } yield earliest(factsOfPlan(plan, isPrepared, 0, now, last + 2))
  }

  private def factsOf(m: PlannedMigration, index: Int, now: RoutingEntry, next: Long): StepFacts = {
    val isOrdered = shipments.covers(m.id, index)
    def total = m.plan.steps(index).moves.size.toLong * run.now.stores.size
    val facts = factsOfPlan(m.plan, m.options.isPrepared, index, now, next)
    def isOwn = now.step.exists(_.migration == m.id)
    facts.copy(startEpoch = m.options.startEpoch.getOrElse(0),
      fits = facts.fits && (isOwn || m.from.forall(_ == now.name.render)),
      isOrdered = isOrdered, copies = if (isOrdered) shipments.copies(index, total) else None)
  }

  /** The facts for a plan that is submitted now. If it doesn't fit, its moves may be from partitions that don't exist. */
  private def factsOfPlan(plan: MigrationPlan, isPrepared: Boolean, index: Int, now: RoutingEntry, next: Long): StepFacts = {
    val (partitions, wanted) = (now.table.partitions, plan.steps(index).partitions)
    val fits = plan.tableAfter(index, now.table).isDefined
    StepFacts(index, next, now.epoch, now.step.exists(_.isOpening), partitions, wanted,
      openedAtOnce = if (wanted > partitions) openedAtOnce(plan, index) else 1, startEpoch = 0, plan.gap,
      if (fits) deliveries.of(plan, isPrepared, index, now.table) else Delivery.AtSwitch, isOrdered = false, copies = None,
      maxEpochsToWait, fits)
  }

  /** The table of epoch `next`, if it differs from `now`; orders the copies that later steps need. */
  def advance(now: RoutingEntry, next: Long): Option[RoutingEntry] = {
    val early = this.early(next)
    val tables = run.now.tables
    val active = migration.filterNot(_.cancelled)
    val taken = active.map(m => tables.stepsTaken(m.id)).getOrElse(0)
    if (early.isEmpty) {
      firstDecided = firstDecided.orElse(Some(next))
      shipments.closeOthers(active.map(m => (m.id, taken)), tables.stepAt(next - 1))
    }
    val entry = for {
      m <- active if taken < m.plan.steps.size
      known = factsOf(m, taken, now, next).copy(early = early)
      facts = if (early.isEmpty && known.fits) withObstacles(m, known) else known
      entry <- act(m, facts, now.table)
    } yield entry
    entry.foreach { e =>
      for (m <- active; s <- e.step if !s.isOpening) sources.look(m, s.index + 1)
      e.step.foreach { s =>
        logInfo(LogLine(if (s.isOpening) "opening" else "step", "query" -> query.id, "epoch" -> next,
            "migration" -> s.migration, "step" -> s"${s.index + 1}/${s.steps}", "bins" -> s.moves,
            "partitions" -> e.table.partitions))
      }
    }
    entry
  }

  /** The step that epoch `next` takes, or else the one that is waited for. */
  def awaitedStep(next: Long): Int = run.now.tables.stepAt(next).map(_.index)
    .getOrElse(migration.filterNot(_.cancelled).fold(0)(m => run.now.tables.stepsTaken(m.id)))

  /**
   * Adds the obstacles to a step. Also declares that its partitions exist, and has its sources checked. The step only waits for the
   * answer of that check if it waits for nothing else. (One whose copies have not come for long has waited for an answer all the while.)
   */
  private def withObstacles(m: PlannedMigration, f: StepFacts): StepFacts = {
    val others = f.copy(obstacles = Obstacles(
      isDeleting = !retired.claim(math.max(f.partitions, f.wanted)),
      shipments.isFetching,
      relocation.misplaced,
      protocol.reasonAgainst(f.wanted, f.partitions, relocation.leaving),
      sources.lost,
      tooLong = limits.tooLong))
    decide(others) match {
      case Wait(Reason.NotBefore(epoch)) if !sources.isNear(epoch, f.epoch) => others
      case Wait(_) =>
        sources.keepUp(m, f.step, f.epoch)
        others
      case _ =>
        val unanswered = sources.unanswered(m, f.step, f.epoch, isFirst = firstDecided.contains(f.epoch))
        others.copy(obstacles = others.obstacles.copy(unanswered = unanswered))
    }
  }

  /** Decides what happens to the step at epoch `f.epoch`, and does it. Returns the entry of that epoch, if it gets one. */
  private def act(m: PlannedMigration, f: StepFacts, now: RoutingTable): Option[RoutingEntry] = {
    val before = latest.map(decide)
    val facts = f.following(before)
    latest = Some(facts)
    decide(facts) match {
      case Wait(reason) =>
        if (reason.isTrouble && !before.contains(Wait(reason)))
          logWarning(s"query ${query.id}: migration ${m.id} ${reason.text}")
        None
      case Abandon =>
        logWarning(s"query ${query.id}: migration ${m.id} is abandoned, because its step ${f.step + 1} " +
          "does not fit the table in force; the checkpoint was wound back or started anew; plan again")
        forget(m.copy(cancelled = true), f.step, undoing = None)
        None
      case Order =>
        orderCopies(m, f, now.partitions)
        None
      case Open(partitions, orders) =>
        opened = (opened + (f.epoch -> (partitions - now.partitions))).takeRight(MaxOpenings)
        if (orders) orderCopies(m, f, partitions)
        Some(entry(m, f.step - 1, f.epoch, now.copy(partitions = partitions), isOpening = true))
      case Take(delivery) =>
        if (delivery == Delivery.Ahead) countGivenUp(m, f, f.copies.fold(0L)(_.givenUp)) else send(m, f, delivery)
        m.plan.tableAfter(f.step, now).map(entry(m, f.step, f.epoch, _))
    }
  }

  private def orderCopies(m: PlannedMigration, f: StepFacts, partitions: Int): Unit =
    shipments.order(m.id, f.epoch, f.step, m.copiedTogether(f.step, partitions), Delivery.Ahead)

  /** The step takes effect with the copies that have arrived; `missing` bins have none. */
  private def countGivenUp(m: PlannedMigration, f: StepFacts, missing: Long): Unit = if (missing > 0) {
    uncopied += missing
    logWarning(s"query ${query.id}: $missing of the bins of step ${f.step + 1} of migration ${m.id} could not be copied " +
      s"ahead, after several attempts; epoch ${f.epoch} reads them from the checkpoint and takes longer; the " +
      "executors' logs have the reasons")
  }

  /** The step takes effect without copies: its bins are sent at the switch, or come with all files of their owner. */
  private def send(m: PlannedMigration, f: StepFacts, delivery: Delivery): Unit = {
    if (f.delivery == Delivery.Ahead) {
      logWarning(s"query ${query.id}: the copies for step ${f.step + 1} of migration ${m.id} have made no progress " +
        s"for $maxEpochsToWait epochs; the step no longer waits for them, and its bins are sent at the switch")
      shipments.abandon()
    }
    // A store that is closed at its commit sends nothing more.
    if (!deliveries.unloadsStores) shipments.order(m.id, f.epoch, f.step, IndexedSeq(m.plan.steps(f.step).moves), delivery)
  }

  private def openedAtOnce(plan: MigrationPlan, index: Int): Int = {
    val stores = math.max(run.now.stores.size, 1)
    val pace =
      if (protocol.isRealTime) OpeningPace.AllAtOnce
      else OpeningPace.of(SparkInternals.tookMs(query), SparkInternals.triggerIntervalMs(query),
        query.sparkSession.sparkContext.defaultParallelism,
        opened.map { case (epoch, partitions) => epoch -> partitions * stores })
    pace.partitionsAtOnce(plan.steps(index).partitions - plan.source.partitions, stores)
  }

  private def entry(
      m: PlannedMigration, index: Int, next: Long, table: RoutingTable, isOpening: Boolean = false): RoutingEntry = {
    val moves = if (isOpening) 0 else m.plan.steps(index).moves.size
    RoutingEntry(next, table,
      Some(StepRef(m.id, index, m.plan.steps.size, m.plan.strategy, moves, isOpening)), previous = None, query.runId.toString)
  }

  /**
   * Forgets `m`, and continues with the migration that undoes it, or else with one that another run has accepted. A run that was
   * replaced does neither.
   *
   * The file of `undoing` is written before that of `m` is deleted. If the driver dies in between, the next one finds both, and
   * comes here again, as no step of `undoing` has been taken.
   */
  private def forget(m: PlannedMigration, taken: Int, undoing: Option[PlannedMigration]): Unit = if (!isReplaced()) {
    undoing.foreach(PlannedMigration.write(dir, _))
    Faults.at("rollback.begun")
    PlannedMigration.delete(dir, m)
    remember(m, taken)
    relocation.end(m.cancelled)
    migration = None
    undoing.orElse(PlannedMigration.read(dir).find(_.id != m.id)).foreach(goOnWith)
  }

  /** Continues with a migration that another run has accepted. */
  private def goOnWith(m: PlannedMigration): Unit = {
    begin(m)
    if (!m.cancelled && m.options.movesPartitions && !goesOnWithPlaces(m)) {
      homeless += m.id
      logWarning(s"query ${query.id}: migration ${m.id} of an earlier run names executors of that " +
        "run; its partitions stay where they are, and it will end as cancelled")
    } else if (!m.cancelled) relocation.begin(m.options)
  }

  private def begin(m: PlannedMigration): Unit = {
    uncopied = 0
    latest = None
    limits.begin()
    migration = Some(m)
  }

  private def remember(m: PlannedMigration, steps: Int): Unit =
    outcomes = (outcomes.filterNot(_.id == m.id) :+
      MigrationOutcome(m.id, m.plan.strategy, steps, m.plan.steps.size, isCancelled(m, steps), m.stopped)).takeRight(MaxOutcomes)

  /** Another application has other executors. A run that ends by itself may have too few epochs to see where partitions are. */
  private def goesOnWithPlaces(m: PlannedMigration): Boolean =
    m.application.contains(application) && !StepAtStart.endsByItself(query)
}

private object StepScheduler {
  private val MaxOutcomes = 64
  private val MaxOpenings = 16
}

/**
 * @param steps steps that took effect
 * @param total steps of the plan
 */
private[binshift] final case class MigrationOutcome(
    id: String, strategy: String, steps: Int, total: Int, cancelled: Boolean, stopped: Option[Stopped])
