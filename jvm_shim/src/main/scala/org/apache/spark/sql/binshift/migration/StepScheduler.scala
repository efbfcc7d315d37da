package org.apache.spark.sql.binshift.migration

import scala.collection.immutable.ListMap
import scala.util.control.NonFatal

import org.apache.spark.internal.Logging
import org.apache.spark.sql.binshift.internals.{CommittedEpoch, SparkInternals}
import org.apache.spark.sql.binshift.realtime.Slots
import org.apache.spark.sql.binshift.retention.RetiredPartitions
import org.apache.spark.sql.binshift.routing.TablesInForce
import org.apache.spark.sql.binshift.statistics.QueryStatistics
import org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution
import org.apache.spark.sql.execution.streaming.state.binshift.{BinshiftException, Faults, LogLine}
import org.apache.spark.sql.execution.streaming.state.binshift.checkpoint.{ChangedKeys, ControlDir, Layout}
import org.apache.spark.sql.execution.streaming.state.binshift.routing.{Delivery, RoutingEntry, RoutingTable, StepRef}
import org.apache.spark.sql.execution.streaming.state.binshift.shipping.BackgroundConf

/**
 * Takes a migration through its steps: while an epoch is planned, it says which table the next epoch gets.
 *
 * A prepared migration first opens its new partitions, then has bins copied, and takes a step when the copies for it have arrived.
 * The routing log says which steps were taken ([[TablesInForce]]). Whatever is kept here is lost with the driver, and the next one
 * makes it again. Whole partitions move to other executors before the first step, so that bins are copied to where they stay
 * ([[Relocation]]).
 *
 * Called under the router's lock.
 *
 * @param left               the migration that an earlier run has left
 * @param slots              in real-time mode: how many tasks can run at once
 * @param maxEpochsToWait    epochs that a step waits for copies that make no progress
 * @param storesPerPartition stores that a new partition has, of all operators
 * @param isReplaced         whether another run may have taken the place of this one; makes a request to the checkpoint
 */
private[binshift] final class StepScheduler(
    query: MicroBatchExecution, dir: ControlDir, left: Option[PlannedMigration], shipments: ShipmentCoordinator,
    retired: RetiredPartitions, sources: StepSources, relocation: Relocation, slots: Option[Slots],
    maxEpochsToWait: Int, storesPerPartition: () => Int, isReplaced: () => Boolean)
  extends Logging {
  import StepDecision._
  import StepScheduler._

  private val session = query.sparkSessionForStream
  private lazy val conf = BackgroundConf(session.sessionState.conf.getAllConfs)

  private val application = SparkInternals.applicationOf(session.sparkContext)
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
  private var forecasts: Option[(String, CopyForecast)] = None
  /** The latest epochs that opened partitions, and how many they opened. */
  private var opened = ListMap.empty[Long, Int]
  private val limits = new MigrationLimits
  left.foreach(goOnWith)

  def underWay: Option[PlannedMigration] = migration

  /**
   * True if `m`, which has taken `steps` steps, did less than was asked of it. A migration that was cancelled after its last step
   * was scheduled has done everything, unless partitions were on their way to other executors.
   */
  def isCancelled(m: PlannedMigration, steps: Int): Boolean = homeless(m.id) ||
    m.cancelled && (steps < m.plan.steps.size || m.options.movesPartitions)

  def ended: Seq[MigrationOutcome] = outcomes

  /** Executors on which new partitions are to be placed, if the migration names any. */
  def placeOn: Seq[String] = migration.map(_.options.placeOn).getOrElse(Nil)

  /**
   * Accepts a plan, or throws before anything has changed.
   *
   * @param changed operators whose bins cannot move, because their keys change
   * @param planned the epoch planned last in this run, if one was
   */
  def submit(
      id: String, planJson: String, optionsJson: String, facts: Layout, changed: Seq[ChangedKeys], now: RoutingEntry,
      planned: Option[Long]): PlannedMigration = {
    migration.foreach(m => throw BinshiftException("MIGRATION_UNDER_WAY", "migration_id" -> m.id).migration(inTheWay(m)))
    val m =
      withDeadline(withoutPlaces(PlannedMigration.create(id, planJson, optionsJson, application)), planned.getOrElse(now.epoch))
    m.options.application.filter(_ != application).foreach { other =>
      throw BinshiftException("EXECUTORS_CHANGED", "application" -> other).plan(
        s"the plan names executors of application $other, but the query now runs in $application, which has other executors; " +
          "plan again")
    }
    if (m.options.placeOn.nonEmpty) Executors.of(session.sparkContext).requireLive(m.options.placeOn)
    requireFitting(m, now)
    val partitions = m.plan.steps.map(_.partitions).distinct
    for (s <- slots) {
      val leaving = relocation.leavingWith(m.options)
      partitions.foreach(s.requireRoomFor(_, now.table.partitions, leaving))
      if (m.options.vacate.nonEmpty) (now.table.partitions +: partitions).foreach(s.requireRoomWithout(leaving, _))
    }
    m.options.startEpoch.foreach { e =>
      val earliest = planned.getOrElse(now.epoch) + 1
      if (e < earliest) {
        throw BinshiftException("EPOCH_PASSED", "epoch" -> e, "earliest" -> earliest).plan(
          s"the start epoch $e has passed; the earliest epoch that can change is $earliest")
      }
    }
    facts.unsupported.headOption.filter(_ => m.plan.steps.nonEmpty).foreach { o =>
      throw BinshiftException.unsupportedOperator(
        s"operator ${o.name} cannot migrate, since the keys of its state may differ from the columns by " +
          "which Spark distributes its rows: a typed key of another type than its column, a timestamp that goes through " +
          "Python, or a float that may be null in pandas; the query runs on as it is")
    }
    changed.headOption.filter(_ => m.plan.steps.nonEmpty).foreach(c => throw c.refusal("the query runs on as it is"))
    if (m.plan.steps.isEmpty && !m.options.movesPartitions) remember(m, 0)
    else {
      PlannedMigration.read(dir).find(_.id != id).foreach { theirs =>
        throw BinshiftException("MIGRATION_UNDER_WAY", "migration_id" -> theirs.id).migration(
          s"migration ${theirs.id} was accepted by another run of the query since this one began; if that run is over, start the " +
            "query again, and it continues with the migration; otherwise stop this run")
      }
      if (isReplaced()) throw BinshiftException("ANOTHER_RUN", "checkpoint" -> dir.path.getParent).configuration(
        s"another run of query ${query.id} has taken the place of this one; submit the plan there, and stop this one")
      PlannedMigration.write(dir, m)
      begin(m)
      relocation.begin(m.options)
      if (m.options.startEpoch.forall(sources.isNear(_, planned.getOrElse(now.epoch)))) sources.look(m, 0)
      foresee(m)
      whyNotCopied(m).foreach(why => logWarning(s"query ${query.id}: migration ${m.id}: $why"))
    }
    m
  }

  /** Removes what a plan can't do while stores are closed at each commit, because no partition stays on an executor then. */
  private def withoutPlaces(m: PlannedMigration): PlannedMigration =
    if (!unloadsStores || !m.options.movesPartitions) m
    else m.options.vacate match {
      case Some(executor) =>
        throw BinshiftException("STORES_UNLOADED", "executor" -> executor).plan(
          s"executor '$executor' cannot be drained, because ${SparkInternals.UnloadKey} is true and no state stays on it " +
            "between epochs; have Spark decommission it, or start the query again with the setting false")
      case None =>
        logWarning(s"query ${query.id}: migration ${m.id} moves no whole partitions, because ${SparkInternals.UnloadKey} is " +
          "true: their tasks run wherever a slot is free")
        m.copy(options = m.options.copy(places = Map.empty))
    }

  /** Lets the time of the deadline begin. */
  private def withDeadline(m: PlannedMigration, planned: Long): PlannedMigration = {
    if (slots.nonEmpty) m.options.guard.foreach(g =>
      throw BinshiftException("REAL_TIME_UNSUPPORTED", "what" -> "a guard").plan(
        s"a guard of $g is impossible in real-time mode, whose epochs are as long as the trigger says; give a deadline instead"))
    m.copy(options = m.options.copy(deadline = m.options.deadline.map(_.begun(System.currentTimeMillis(), planned))))
  }

  /** The message for a plan that is refused because `m` isn't over. */
  private def inTheWay(m: PlannedMigration): String =
    if (m.rollsBack) {
      s"migration ${m.id} is about to be rolled back, because ${m.stopped.get.why}; wait until that is over, or cancel it " +
        "before you submit another plan"
    } else if (!m.cancelled) {
      s"migration ${m.id} is under way (${m.plan.steps.size} steps); wait for it or cancel it before you submit another plan"
    } else if (shipments.isFetching) {
      s"migration ${m.id} is cancelled, but the bins of its last step are still on their way; submit the plan again when " +
        "they have arrived"
    } else {
      s"migration ${m.id} is cancelled, but a step is already scheduled and takes effect with the next epoch; feed the query " +
        "data, then plan and submit again"
    }

  /** The forecast of copying that was made when the migration under way was submitted in this run. */
  def forecast(id: String): Option[CopyForecast] = forecasts.filter(_._1 == id).map(_._2)

  def isShippable: Boolean = whyNotShippable.isEmpty

  /** The reason why bins are read from the checkpoint, and neither copied ahead of their step nor sent at it; `None` if they are sent. */
  def whyNotShippable: Option[String] =
    if (!session.sessionState.conf.getConfString(SparkInternals.ChangelogKey, "false").toBoolean)
      Some(s"${SparkInternals.ChangelogKey} is false")
    else Option.when(unloadsStores)(s"${SparkInternals.UnloadKey} is true")

  /** Says why no bins are copied for `m`, although its options or its strategy ask for that. */
  def whyNotCopied(m: PlannedMigration): Option[String] =
    whyNotShippable.filter(_ => m.plan.steps.nonEmpty && (m.options.isPrepared || m.plan.isOnDemand)).map(why =>
      s"no bins are copied ahead, because $why; each step takes effect at once, and its epoch takes longer, because it reads the " +
        "bins from the checkpoint")

  private def unloadsStores: Boolean = SparkInternals.unloadsStores(session)

  /** Makes the forecast. If that fails, the plan is accepted all the same. */
  private def foresee(m: PlannedMigration): Unit =
    try {
      forecasts = for {
        statistics <- QueryStatistics.of(query).snapshot()
        if isPrepared(m.options.isPrepared) && !m.plan.isOnDemand && isShippable
        foreseen <- CopyForecast.of(m.plan, statistics, conf)
      } yield (m.id, foreseen)
      forecasts.flatMap(_._2.tooMuch).foreach(why => logWarning(s"query ${query.id}: migration ${m.id}: $why"))
    } catch {
      case NonFatal(e) => logWarning(s"query ${query.id}: cannot foresee what copying for migration ${m.id} will take", e)
    }

  /** Takes no further step of migration `id`, and undoes none; one that is durable already still takes effect. */
  def cancel(id: String): Unit =
    migration.filter(m => m.id == id && (!m.cancelled || m.rollsBack)).foreach(stop(_, None))

  /** Undoes migration `id` if it is under way, once the last step that it has taken is over. Returns whether it is under way. */
  def rollBack(id: String, why: Stopped): Boolean = {
    val found = migration.filter(_.id == id)
    found.filterNot(_.rollsBack).foreach(stop(_, Some(why)))
    found.isDefined
  }

  private def stop(m: PlannedMigration, why: Option[Stopped]): Unit = {
    val stopped = m.copy(cancelled = true, stopped = why)
    if (!isReplaced()) PlannedMigration.write(dir, stopped)
    migration = Some(stopped)
    relocation.end(cancelled = true)
  }

  /** Stops the migration under way if its deadline has passed, or its epochs take too long. */
  private def keepToLimits(next: Long, tables: TablesInForce): Unit = for (m <- migration if !m.cancelled) {
    val (taken, now) = (tables.stepsTaken(m.id), System.currentTimeMillis())
    if (taken < m.plan.steps.size) {
      if (limits.isLateNow(m, now, next)) logWarning(s"query ${query.id}: migration ${m.id} goes on, although its deadline of " +
        s"${m.options.deadline.get} has passed after $taken of ${m.plan.steps.size} steps")
      for (why <- limits.stopped(m, now, next, lastEpoch(m), taken)) {
        logWarning(s"query ${query.id}: migration ${m.id} takes no further step, because ${why.why}" +
          (if (why.rollsBack) "; it is rolled back" else ""))
        stop(m, Some(why))
      }
    }
  }

  /** The number and the milliseconds of the last epoch, if `m` has a guard. */
  private def lastEpoch(m: PlannedMigration): Option[(Long, Long)] =
    m.options.guard.flatMap(_ => OpeningPace.epochsOf(query).maxByOption(_._1))

  /**
   * True if the last step of `m` has been committed and all partitions are where it wants them, or if `m` is cancelled and no step
   * is in flight.
   */
  def isOver(m: PlannedMigration, tables: TablesInForce): Boolean =
    (m.cancelled || tables.stepsTaken(m.id) == m.plan.steps.size) && !shipments.isFetching && {
      val committed = CommittedEpoch.of(query)
      tables.newestOf(m.id).forall(_ <= committed) && (m.cancelled || relocation.isDone(committed))
    }

  /**
   * Forgets the migration once it is over, unless it has to be undone ([[rollBackIfDue]]). If the query has ended, the migration's file
   * belongs to the next run.
   */
  def finishIfDone(tables: TablesInForce): Unit = migration.filter(m => !m.rollsBack && query.isActive && isOver(m, tables))
    .foreach(m => forget(m, tables.stepsTaken(m.id), undoing = None))

  /**
   * Begins to undo the migration, once its last step is over. A run that repeats an epoch of an earlier one doesn't, because that one
   * may have gone on and taken steps that this run doesn't know.
   */
  private def rollBackIfDue(now: RoutingEntry, tables: TablesInForce): Unit =
    migration.filter(m => m.rollsBack && isOver(m, tables)).foreach { m =>
      val taken = tables.stepsTaken(m.id)
      forget(m, taken, Rollback.of(m, taken, now))
    }

  /** @param last the epoch planned last in this run; the one after it schedules what takes effect at `last + 2` */
  def outlook(m: PlannedMigration, tables: TablesInForce, last: Option[Long]): Outlook = {
    val index = tables.stepsTaken(m.id)
    val scheduled = last.map(_ + 1).filter(tables.stepAt(_).exists(_.migration == m.id))
    val facts = for {
      epoch <- last if scheduled.isEmpty && !m.cancelled && index < m.plan.steps.size
      now <- tables.scheduled.orElse(tables.current)
      f = factsOf(m, index, now, epoch + 2)
      known = f.copy(copies = f.copies.map(_.copy(awaiting = QueryStatistics.of(query).awaiting().toSeq)))
    } yield latest.fold(known)(l => known.copy(early = l.early, obstacles = l.obstacles))
    val told = facts.filter(_ => tables.scheduled.isEmpty).flatMap(_.copies)
    Outlook(scheduled.orElse(facts.map(earliest)), facts.map(decide).collect { case Wait(reason) => reason },
      awaited = told.map(_.missing).filter(_ > 0), givenUp = uncopied + told.fold(0L)(_.givenUp))
  }

  /** The first epoch at which `plan` can take effect if submitted now; `None` if a migration is under way, or it has no step. */
  def earliestEpoch(plan: MigrationPlan, isPrepared: Boolean, tables: TablesInForce, last: Long): Option[Long] =
    tables.scheduled.orElse(tables.current).filter(_ => migration.isEmpty && plan.steps.nonEmpty)
      .map(now => earliest(factsOfPlan(plan, isPrepared, 0, now, last + 2)))

  private def factsOf(m: PlannedMigration, index: Int, now: RoutingEntry, next: Long): StepFacts = {
    val isOrdered = shipments.covers(m.id, index)
    def total = m.plan.steps(index).moves.size.toLong * storesPerPartition()
    factsOfPlan(m.plan, m.options.isPrepared, index, now, next).copy(startEpoch = m.options.startEpoch.getOrElse(0),
      isOrdered = isOrdered, copies = if (isOrdered) shipments.copies(index, total) else None)
  }

  /** The facts for a plan that is submitted now. If it doesn't fit, its moves may be from partitions that don't exist. */
  private def factsOfPlan(plan: MigrationPlan, isPrepared: Boolean, index: Int, now: RoutingEntry, next: Long): StepFacts = {
    val (partitions, wanted) = (now.table.partitions, plan.steps(index).partitions)
    val fits = plan.tableAfter(index, now.table).isDefined
    StepFacts(index, next, now.epoch, now.step.exists(_.isOpening), partitions, wanted,
      openedAtOnce = if (wanted > partitions) openedAtOnce(plan, index) else 1, startEpoch = 0, plan.gap,
      if (fits) deliveryOf(plan, isPrepared, index, now.table) else Delivery.AtSwitch, isOrdered = false, copies = None,
      maxEpochsToWait, fits)
  }

  /**
   * The table of epoch `next`, if it differs from `now`; orders the copies that later steps need.
   *
   * @param isAgain     whether an earlier run has logged the epoch that is being planned
   * @param takenOverAt the epoch that takes the state over from Spark's provider
   */
  def advance(now: RoutingEntry, next: Long, isAgain: Boolean, takenOverAt: Option[Long]): Option[RoutingEntry] = {
    val early = Reason.early(next, isAgain, takenOverAt)
    val tables = TablesInForce(Some(now))
    if (early.isEmpty) {
      keepToLimits(next, tables)
      rollBackIfDue(now, tables)
    }
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
  def awaitedStep(tables: TablesInForce, next: Long): Int = tables.stepAt(next).map(_.index)
    .getOrElse(migration.filterNot(_.cancelled).map(m => tables.stepsTaken(m.id)).getOrElse(0))

  /**
   * Adds the obstacles to a step. Also declares that its partitions exist, and has its sources checked. The step only waits for the
   * answer of that check if it waits for nothing else. (One whose copies have not come for long has waited for an answer all the while.)
   */
  private def withObstacles(m: PlannedMigration, f: StepFacts): StepFacts = {
    val others = f.copy(obstacles = Obstacles(
      isDeleting = !retired.claim(math.max(f.partitions, f.wanted)),
      shipments.isFetching,
      relocation.misplaced,
      slots.flatMap(_.reasonAgainst(f.wanted, f.partitions, relocation.leaving)),
      sources.lost,
      tooLong = limits.tooLong(m, lastEpoch(m))))
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
    if (!unloadsStores) shipments.order(m.id, f.epoch, f.step, IndexedSeq(m.plan.steps(f.step).moves), delivery)
  }

  private def openedAtOnce(plan: MigrationPlan, index: Int): Int = {
    val stores = math.max(storesPerPartition(), 1)
    OpeningPace.of(query, opened.map { case (epoch, partitions) => epoch -> partitions * stores })
      .partitionsAtOnce(plan.steps(index).partitions - plan.source.partitions, stores)
  }

  private def deliveryOf(plan: MigrationPlan, prepares: Boolean, index: Int, now: RoutingTable): Delivery =
    if (!isShippable) Delivery.AtSwitch
    else if (plan.isOnDemand) Delivery.OnDemand
    else if (isPrepared(prepares)) Delivery.Ahead
    else Some(splits(plan, index, now)).filter(_.nonEmpty).fold[Delivery](Delivery.AtSwitch)(Delivery.WholeFiles)

  /** Copies end with a run, and a run that ends by itself may have too few epochs for any. */
  private def isPrepared(wanted: Boolean): Boolean = wanted && !StepAtStart.endsByItself(query)

  /**
   * The partitions that begin with all files of another one at step `index`, if so much moves that this is worth an epoch in
   * which they are opened. A batch of real-time mode may take minutes.
   */
  private def splits(plan: MigrationPlan, index: Int, now: RoutingTable): Map[Int, Int] = {
    val moves = plan.steps(index).moves
    def isLarge = QueryStatistics.of(query).snapshot().exists { statistics =>
      statistics.operators.exists(o => o.isSized && moves.map(m => o.bytes(m.bin)).sum >= conf.bytesToSplit)
    }
    if (slots.nonEmpty || !isLarge) Map.empty else Splits.of(now, moves)
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
    outcomes =
      (outcomes :+ MigrationOutcome(m.id, m.plan.strategy, steps, m.plan.steps.size, isCancelled(m, steps), m.stopped))
        .takeRight(MaxOutcomes)

  /** Another application has other executors. A run that ends by itself may have too few epochs to see where partitions are. */
  private def goesOnWithPlaces(m: PlannedMigration): Boolean =
    m.application.contains(application) && !StepAtStart.endsByItself(query)
}

private object StepScheduler {
  private val MaxOutcomes = 64
  private val MaxOpenings = 16

  private def requireFitting(m: PlannedMigration, now: RoutingEntry): Unit = {
    if (m.plan.source != now.table) {
      throw BinshiftException("PLAN_OUTDATED", "epoch" -> now.epoch).plan(
        s"the plan starts from a table with ${m.plan.source.partitions} partitions and " +
          s"${m.plan.source.bins} bins that is not the one in force since epoch ${now.epoch} " +
          s"(${now.table.partitions} partitions, ${now.table.bins} bins); plan again")
    }
    try m.plan.requireFitting()
    catch {
      case e: IllegalArgumentException => throw BinshiftException("PLAN_DOES_NOT_FIT").plan(
          s"the plan does not fit: ${e.getMessage.stripPrefix("requirement failed: ")}; plan again")
    }
  }
}

/**
 * @param steps steps that took effect
 * @param total steps of the plan
 */
private[binshift] final case class MigrationOutcome(
    id: String, strategy: String, steps: Int, total: Int, cancelled: Boolean, stopped: Option[Stopped])
