package org.apache.spark.sql.binshift.migration

import java.util.concurrent.{ThreadPoolExecutor, TimeUnit}
import java.util.concurrent.atomic.AtomicBoolean

import org.apache.hadoop.conf.Configuration

import org.apache.spark.broadcast.Broadcast
import org.apache.spark.scheduler.{SparkListener, SparkListenerExecutorRemoved}
import org.apache.spark.sql.binshift.internals.{Broadcasts, CommittedEpoch, SparkInternals}
import org.apache.spark.sql.binshift.routing.{PlannedEpoch, TablesInForce}
import org.apache.spark.sql.binshift.statistics.StatisticsSnapshot
import org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution
import org.apache.spark.sql.execution.streaming.state.StateStoreId
import org.apache.spark.sql.execution.streaming.state.binshift.{BinshiftConf, LogLine, OrWarn}
import org.apache.spark.sql.execution.streaming.state.binshift.shipping._
import org.apache.spark.util.{SerializableConfiguration, ThreadUtils}

/**
 * Makes other executors keep the files of each partition, and partitions run there when their own executor dies. Also makes executors
 * fetch the files of partitions that are about to move to them.
 *
 * The executors are chosen again when executors come or go, and when partitions move ([[StandbyPlan]]). Executors ask for their
 * standbys once in each interval, and say how far they have come ([[StandbyEndpoint]]). An executor that hasn't asked yet, or that
 * partitions wait for, is told to by a short job. When an executor is lost, Spark's coordinator of state stores is told that its
 * partitions are where their standbys are. As in [[Relocation]], that is only a preference.
 *
 * Checks are made one at a time, on a thread of their own. The stream's thread notes the epoch, and checks itself only if an executor is
 * lost at that moment: then it asks Spark's coordinator, in the same JVM, once for each store.
 * Thread-safe.
 *
 * @param count      number of standbys of each partition, beside those of partitions that are about to move
 * @param conf       bounds on what standbys may use
 * @param relocation knows where partitions are about to move, and where nothing should be placed
 */
private[binshift] final class Standbys(query: MicroBatchExecution, count: Int, conf: StandbyConf, relocation: Relocation)
  extends StandbyListener with OrWarn {
  import Standbys._

  private val session = query.sparkSession
  private val context = session.sparkContext
  private val runId = query.runId.toString

  private var planned = PlannedEpoch(None, TablesInForce())
  /** The last epoch at which each partition got bins. Until this run has seen that, the last one at which any partition got bins. */
  private var gained = Map.empty[Int, Long]
  /** The executors on which partitions ran at the last look. */
  private var primaries = IndexedSeq.empty[Set[String]]
  private var seen: Option[Seen] = None
  private var lookedAtNs = 0L
  private var plan = Map.empty[Int, Seq[String]]
  /** Standbys whose partitions are about to be loaded from them, or have been, and since which epoch. */
  private var arriving = Map.empty[(Int, String), Long]
  /** By executor. */
  private var orders = Map.empty[String, Ordered]
  private var lastOrder = 0L
  /** Executors that a job is telling to ask. */
  private var beginning = Set.empty[String]
  /** Executors that no job has reached, or that have fallen silent, so that nobody waits for them. */
  private var unreached = Set.empty[String]
  private var reports = Map.empty[String, Reported]
  /** The latest epoch during which partitions went to their standbys. */
  private var takenAt: Option[Long] = None
  private var taken = 0L
  private var isClosed = false

  /** Held during a look. */
  private val looks = new Object
  /** How many looks in a row have failed, with the one that is under way. */
  @volatile private var unfinished = 0
  @volatile private var isLookDue = false
  private lazy val hadoopConf: Broadcast[SerializableConfiguration] = {
    isBroadcast = true
    context.broadcast(new SerializableConfiguration(session.sessionState.newHadoopConf()))
  }
  @volatile private var isBroadcast = false

  private val removals = new SparkListener {
    override def onExecutorRemoved(removed: SparkListenerExecutorRemoved): Unit = lookSoon()
  }
  // Polls, because a stage whose tasks were lost begins again after a fifth of a second, and events may be late.
  private val watch = new ExecutorWatch(s"query ${query.id}", () => isLookDue || isLost,
    () => {
      isLookDue = false
      guarded(look())
    })

  StandbyEndpoint.add(runId, this)
  context.addSparkListener(removals)

  /**
   * Called on the stream's thread with the epoch that is being planned.
   *
   * @param arriving the bins that have another owner at this epoch than at the one before
   */
  def enter(next: PlannedEpoch, arriving: Set[Int]): Unit = {
    val isDue = synchronized {
      val isKnown =
        seen.exists(s => s.avoided == relocation.leaving && s.coming == relocation.coming && known.forall(_ == s.known))
      val isChanged = next.partitions != planned.partitions
      next.tables.current.foreach { entry =>
        if (planned.epoch.isEmpty && entry.previous.isDefined)
          gained = (0 until entry.table.partitions).map(_ -> entry.epoch).toMap
        gained ++= arriving.map(entry.table.owner(_) -> entry.epoch)
      }
      planned = next
      if (takenAt.exists(now > _ + 1)) {
        takenAt = None
        LocalityWait.release(this)
      }
      val lookedNs = System.nanoTime() - lookedAtNs
      val isUnknown = primaries.indices.exists(p => primaries(p).isEmpty && planned.operators.exists(planned.hasState(_, p)))
      isWanted && (isChanged || !isKnown || this.arriving.exists(now > _._2 + 1) || takenAt.isDefined || lookedNs > LookNs ||
        isUnknown && lookedNs > TimeUnit.MILLISECONDS.toNanos(conf.intervalMs))
    }
    // Now, because the stage is about to ask where its partitions are.
    if (isLost) guarded(look()) else if (isDue) lookSoon()
  }

  /** Plans standbys again, on another thread. Waits for nothing. */
  def lookSoon(): Unit = {
    isLookDue = true
    watch.soon()
  }

  /** The live executors that have a standby of a partition, best one first. */
  def of(partition: Int): Seq[String] = synchronized(plan.get(partition).fold(Seq.empty[String]) { executors =>
    val live = known
    executors.filter(e => live.forall(_(e))).sortBy(e => -reach(partition, e, _ => true))
  })

  /** True if a partition can be loaded on an executor from the files there, as far as is known. */
  def hasFiles(partition: Int, executor: String): Boolean = synchronized(reach(partition, executor, _ => true) >= 0)

  /** True if nobody needs to wait until an executor has the files of a partition: it has them, or may never have them. */
  def isReady(partition: Int, executor: String): Boolean = unfinished > MaxUnfinished || synchronized {
    orders.get(executor).exists { ordered =>
      ordered.partitions(partition) && (unreached(executor) || progress(partition, executor).forall(_._2.exists(_.isSettled)))
    }
  }

  /** The standbys of each partition, with what they lack of the stores of operators with `only` these ids. */
  def views(only: Long => Boolean = _ => true): Map[Int, Seq[StandbyView]] = if (count == 0) Map.empty
  else {
    val newest = CommittedEpoch.of(query) + 1
    synchronized(plan.map { case (p, executors) =>
      p -> executors.map { e =>
        val version = reach(p, e, only)
        StandbyView(e, Option.when(version >= 0)(math.max(0, newest - version)))
      }
    })
  }

  /** The statistics with the standbys of each operator. */
  def shownIn(s: StatisticsSnapshot): StatisticsSnapshot = s.copy(operators = s.operators.map { o =>
    val ofOperator = views(_ == o.id)
    o.copy(standbys = (0 until s.table.partitions).map(ofOperator.getOrElse(_, Nil).map(v => v.executor -> v.lag)))
  })

  /** How many partitions went to their standbys in this run. */
  def takenOver: Long = synchronized(taken)

  override def answer(report: StandbyReport): Option[StandbyAnswer] = {
    val committed = CommittedEpoch.of(query)
    synchronized(Option.when(!isClosed) {
      val ordered = orders.getOrElse(report.executor, Ordered(StandbyOrder(0, IndexedSeq.empty), IndexedSeq.empty, Set.empty))
      reports += report.executor -> Reported.after(reports.get(report.executor), ordered, report, System.nanoTime())
      unreached -= report.executor
      StandbyAnswer(committed, Option.when(report.order != ordered.order.id)(ordered.order))
    })
  }

  def close(): Unit = {
    watch.close()
    context.removeSparkListener(removals)
    val isFirst = synchronized {
      val first = !isClosed
      isClosed = true
      first
    }
    StandbyEndpoint.remove(runId)
    LocalityWait.release(this)
    if (isFirst && isBroadcast) Broadcasts.destroy(hadoopConf, context)
  }

  /** True if an executor with partitions is lost. Sends no message. */
  private def isLost: Boolean = synchronized(!isClosed && isWanted && known.exists(live => primaries.exists(_.exists(!live(_)))))

  /** True if there are standbys, or should be. */
  private def isWanted: Boolean = count > 0 || relocation.coming.nonEmpty || orders.values.exists(_.stores.nonEmpty)

  private def now: Long = planned.epoch.getOrElse(-1L)

  private def known: Option[collection.Set[String]] = Executors.known(context)

  private def guarded(work: => Unit): Unit =
    orWarn(s"query ${query.id}: standbys could not be planned; the next epoch tries again")(work)

  /** Gives the partitions of lost executors to their standbys, and plans standbys again. */
  private def look(): Unit = looks.synchronized {
    unfinished += 1
    val (next, isOpen) = synchronized((planned, !isClosed && isWanted))
    if (isOpen && next.operators.nonEmpty) {
      val found =
        (0 until next.partitions).map(p => Placement.executorsOf(session, next.operators.filter(next.hasState(_, p)), p))
      // Asked after that, so that an executor that joined in between and has a store already isn't taken for a lost one.
      val knownNow = known.fold(Set.empty[String])(_.toSet)
      val executors = Executors.of(context)
      val (avoided, coming) = (relocation.leaving, relocation.coming)
      val unwanted = avoided ++ executors.decommissioned
      val dead = found.flatten.toSet.filterNot(if (known.isDefined) knownNow else executors.isThere)
      val saved = if (dead.isEmpty) Map.empty[Int, String] else rescue(next, dead, found, executors)
      val places = found.zipWithIndex.map { case (on, p) => on -- dead ++ saved.get(p) }
      val hosts = executors.live.toMap -- unwanted
      val unasked = synchronized {
        primaries = places
        seen = Some(Seen(knownNow, avoided, coming))
        lookedAtNs = System.nanoTime()
        reports = reports.filter { case (e, _) => executors.isThere(e) }
        orders = orders.filter { case (e, _) => executors.isThere(e) }
        become(StandbyPlan.of(places, plan, hosts, count), coming.filter { case (_, e) => hosts.contains(e) }, next)
        // Partitions wait for these, so they hear of their order now.
        val hurried = coming.collect { case (p, e) if progress(p, e).exists(_._2.isEmpty) => e }.toSet
        val silent = orders.collect {
          case (e, o) if hosts.contains(e) && o.stores.nonEmpty && !beginning(e) && (hurried(e) || !isHeard(e)) => e
        }.toSeq
        beginning ++= silent
        unreached ++= silent.filter(e => reports.contains(e) && !isHeard(e))
        silent
      }
      if (unasked.nonEmpty) Jobs.execute(() => guarded(begin(unasked.map(e => e -> hosts(e)).toMap)))
    }
    unfinished = 0
  }

  private def rescue(
      next: PlannedEpoch, dead: Set[String], found: IndexedSeq[Set[String]], executors: Executors): Map[Int, String] = {
    val lost = found.indices.filter(p => found(p).exists(dead))
    val saved = lost.flatMap { p =>
      val place = of(p).find(executors.live.contains)
      place.filter(e => Placement.rescue(session, next.operators, p, dead, e, executors.live(e))).map(p -> _)
    }.toMap
    if (saved.nonEmpty) {
      synchronized {
        taken += saved.size
        takenAt = next.epoch
        if (!isClosed) LocalityWait.hold(this, query.id, context)
      }
      logInfo(LogLine("standbys", "query" -> query.id, "lost" -> dead.toSeq.sorted.mkString(","), "partitions" -> lost.size,
          "taken_over" -> saved.size, "by" -> saved.values.toSeq.distinct.sorted.mkString(",")))
    }
    saved
  }

  private def become(best: Map[Int, Seq[String]], coming: Map[Int, String], next: PlannedEpoch): Unit = {
    // A standby's files are kept until the epoch is over whose tasks load the partition from them.
    val at = next.epoch.getOrElse(-1L)
    val came = for { (p, executors) <- plan.toSeq; e <- executors if primaries.lift(p).exists(_(e)) } yield (p, e) -> at
    arriving = came.toMap ++ arriving.filter { case ((p, e), since) => at <= since + 1 && p < primaries.size && primaries(p)(e) }
    plan = best
    val kept = best.toSeq.flatMap { case (p, executors) => executors.map(_ -> p) } ++ arriving.keys.map(_.swap)
    // Those for which somebody waits are fetched first.
    val byExecutor = (coming.toSeq.sorted.map(_.swap) ++ kept.sortBy(_._2)).distinct.groupMap(_._1)(_._2)
    orders = (orders.keySet ++ byExecutor.keySet).map { executor =>
      val of = byExecutor.getOrElse(executor, Nil).filter(_ < next.partitions)
      val stores = for {
        p <- of.toIndexedSeq
        op <- next.operators if next.hasState(op, p)
        store <- Placement.stores(op, p)
      } yield store.storeId
      executor -> orders.get(executor).filter(_.stores == stores).map(_.copy(partitions = of.toSet)).getOrElse {
        lastOrder += 1
        Ordered(StandbyOrder(lastOrder, stores.map(s => StandbyTarget(s.storeCheckpointLocation().toString, s.partitionId))),
          stores, of.toSet)
      }
    }.toMap
    reports = reports.map { case (e, r) => e -> r.keepOnly(orders.get(e)) }
    unreached = unreached.filter(orders.get(_).exists(_.stores.nonEmpty))
  }

  /** Tells executors to ask that haven't asked yet, or not for long. Waits until each has a free slot. */
  private def begin(unasked: Map[String, String]): Unit =
    try {
      val inputs = unasked.map { case (executor, host) => executor -> (host -> runId) }
      val begun = ExecutorJob.run(context, "binshift: standbys of partitions are begun", inputs)(new Begin(hadoopConf, conf))
      synchronized(begun.foreach(e => if (!isHeard(e)) reports += e -> Reported(System.nanoTime(), Map.empty)))
    } finally synchronized {
        beginning --= unasked.keySet
        unreached ++= unasked.keySet.filterNot(isHeard)
        // Executors that were busy or died are looked at again.
        if (!unasked.keys.forall(isHeard) && !RealTimeQueries.areIn(context)) seen = None
      }

  private def isHeard(executor: String): Boolean =
    reports.get(executor).exists(r =>
      System.nanoTime() - r.atNs < math.max(MinSilenceNs, SilentIntervals * conf.intervalMs * 1000000L))

  /** The version of a partition that can be loaded on an executor from its files; -1 if that isn't known, or there are none. */
  private def reach(partition: Int, executor: String, only: Long => Boolean): Long = {
    val binned = planned.storeNames.keySet
    progress(partition, executor).collect {
      case (store, found) if only(store.operatorId) =>
        // Up to the partition's first snapshot after it got bins, a load begins with snapshots of other partitions, too.
        val gainedAt = gained.get(partition).filter(at => binned(store.operatorId) && found.exists(_.base <= at))
        found.fold(-1L)(p => gainedAt.fold(p.version)(math.min(p.version, _)))
    }.minOption.getOrElse(-1L)
  }

  /** How far each store of a partition has come on an executor, as far as that is known. */
  private def progress(partition: Int, executor: String): Seq[(StateStoreId, Option[StandbyProgress])] = for {
    ordered <- orders.get(executor).toSeq
    store <- ordered.storesOf.getOrElse(partition, Nil)
  } yield store -> reports.get(executor).flatMap(_.stores.get(store))
}

private[binshift] object Standbys extends OrWarn {
  /** How often it looks where partitions run, even if nothing is known to have changed. */
  private val LookNs = TimeUnit.SECONDS.toNanos(30)
  /** An executor that hasn't asked for this many intervals is told to do so again. */
  private val SilentIntervals = 12L
  private val MinSilenceNs = TimeUnit.SECONDS.toNanos(30)
  /** After so many failed looks in a row, no partition waits for its files any longer. */
  private val MaxUnfinished = 3

  private lazy val Jobs: ThreadPoolExecutor = ThreadUtils.newDaemonCachedThreadPool("binshift-standbys", 16)

  private val isSaid = new AtomicBoolean

  /**
   * True if executors can die without the driver, and can be told to keep files. In real-time mode, a job that tells them gets no slot
   * until the batch ends, and Spark would end the query because of it.
   *
   * @param areWanted whether the user is told why they aren't possible
   */
  def arePossible(query: MicroBatchExecution, isRealTime: Boolean, areWanted: Boolean): Boolean = {
    val context = query.sparkSession.sparkContext
    val reason =
      if (context.isLocal) Some(s"the master ${context.master} has no executor beside the driver")
      else if (isRealTime)
        Some("in real-time mode, the jobs that they take could end it; the first batch after a lost executor " +
          "reads its state from the checkpoint")
      else Option.when(SparkInternals.unloadsStores(query.sparkSessionForStream))(
        s"${SparkInternals.UnloadKey} is true, so that each epoch reads its state from the checkpoint anyway")
    // With a local master, once is enough.
    for (why <- reason if areWanted && (!context.isLocal || isSaid.compareAndSet(false, true)))
      logWarning(s"query ${query.id} has no standbys, though ${BinshiftConf.Standbys} is set: $why")
    reason.isEmpty
  }

  /** The facts on which a look was based. If they change, another look is due. */
  private final case class Seen(known: Set[String], avoided: Set[String], coming: Map[Int, String])

  private[migration] final case class Ordered(order: StandbyOrder, stores: IndexedSeq[StateStoreId], partitions: Set[Int]) {
    val storesOf: Map[Int, Seq[StateStoreId]] = stores.groupBy(_.partitionId)
  }

  /** @param stores how far an executor's stores have come, of those that every order since has named */
  private[migration] final case class Reported(atNs: Long, stores: Map[StateStoreId, StandbyProgress]) {
    /** An executor may have dropped what an order doesn't name, even if a later one names it again. */
    def keepOnly(ordered: Option[Ordered]): Reported = copy(stores = stores.filter { case (s, _) =>
      ordered.exists(_.storesOf.get(s.partitionId).exists(_.contains(s)))
    })
  }

  private[migration] object Reported {
    /** @param ordered the order that is in force, which may be newer than that of the `report` */
    def after(before: Option[Reported], ordered: Ordered, report: StandbyReport, nowNs: Long): Reported = Reported(nowNs,
      if (report.order == ordered.order.id) ordered.stores.zip(report.stores).toMap
      // It has begun anew, and has nothing.
      else if (report.order < 0) Map.empty
      else before.fold(Map.empty[StateStoreId, StandbyProgress])(_.stores))
  }

  /** The task of each executor. */
  private final class Begin(
      hadoopConf: Broadcast[SerializableConfiguration], conf: StandbyConf) extends ExecutorJob.Task[String] {
    override def run(runId: String): Unit = StandbyStores.begin(runId, conf, new Configuration(hadoopConf.value.value))
  }
}

/** @param lag versions that the standby lacks; `None` while it has no whole snapshot */
private[binshift] final case class StandbyView(executor: String, lag: Option[Long])
