package org.apache.spark.sql.binshift.migration

import org.apache.spark.internal.Logging
import org.apache.spark.sql.binshift.routing.RunState
import org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution

/**
 * Moves whole partitions to other executors. It knows which partitions are wanted where, tells Spark's scheduler at each epoch until
 * they are there, and then lets go.
 *
 * A partition's new executor loads its state from the checkpoint, as after the loss of an executor. So a place is only a preference,
 * and the result doesn't depend on it. Places are forgotten with the run of the query; the next run of the same application is told
 * again what the migration under way wants. In a prepared migration, the new executor gets a standby before ([[Standbys]]), if it has
 * none yet, and the partition moves once that has the files.
 *
 * A partition has arrived when an epoch for which it was asked to move is committed, and the coordinator still has it at the new place.
 * Each task reports its stores, so otherwise the coordinator would have another executor by then.
 *
 * Called under the lock of the run, except for questions that say otherwise: `enter` on the stream's thread while an epoch is planned,
 * the rest by any thread.
 *
 * Partitions of executors that Spark decommissions move without a migration ([[Evacuation]]), but if a migration wants them somewhere,
 * that counts. Partitions whose executor is lost get another one before their next tasks begin, because a task would wait in vain for
 * the lost one.
 *
 * @param isLost    whether the checkpoint is known to lack files of a partition, which then has to stay where its state is
 * @param maxEpochs for how many epochs a partition is asked to move, unless its executor is drained
 * @param evacuates whether executors that Spark decommissions are drained
 * @param standbys  the query's standbys, if it can have any
 * @param isRealTime whether all tasks of a batch run at once. If so, no task waits longer for its executor, because a full executor
 *                  stays full until the batch ends.
 */
private[binshift] final class Relocation(
    query: MicroBatchExecution, run: RunState, maxEpochs: Int, evacuates: Boolean, isLost: Int => Boolean,
    standbys: => Option[Standbys], isRealTime: Boolean) extends Logging {
  import Relocation._

  private val session = query.sparkSession
  private val evacuation = new Evacuation(query, run, standbysOf)

  /** The executors of each partition, according to the coordinator when `seen` was the newest committed epoch. */
  private var places = IndexedSeq.empty[Set[String]]
  private var seen = -1L
  private var seenExecutors = Set.empty[String]
  /** Executors that existed when an epoch was planned, without those whose partitions were given to others since. */
  private var present = Set.empty[String]
  @volatile private var wanted = Map.empty[Int, WantedPlace]
  /** The executor that the migration under way empties. */
  private var drained: Option[String] = None
  /** Executors that get no partition: those that are or were drained, until they are gone or partitions are placed there again. */
  @volatile private var avoided = Set.empty[String]
  /** Avoided executors that are only avoided because they are about to go. */
  private var departing = Set.empty[String]
  private var receivers = Seq.empty[String]
  private var notBefore = 0L
  private var isPrepared = false
  @volatile private var left = Set.empty[Int]
  /** True while a migration wants something, which was first asked for at the epoch `since`. */
  private var isUnderWay = false
  private var since: Option[Long] = None

  if (isRealTime) RealTimeQueries.begin(this, session.sparkContext)

  /** Executors on which nothing should be placed. Needs no lock. */
  def leaving: Set[String] = avoided

  /** The same, once a migration with `options` is under way. */
  def leavingWith(options: MigrationOptions): Set[String] =
    avoided -- options.places.values -- options.placeOn ++ options.vacate

  /** The executors that should have the files of partitions, because these are about to move there. Needs no lock. */
  def coming: Map[Int, String] = (evacuation.places ++ wanted).collect { case (p, w) if w.isFetched => p -> w.executor }

  /** How many partitions have not arrived yet where they are wanted, as of the last look. Needs no lock. */
  def misplaced: Int = (left ++ evacuation.places.keySet).size

  /** How many partitions have left executors that Spark decommissions in this run, or are on their way. Needs no lock. */
  def evacuated: Long = evacuation.total

  /** True if [[evacuate]] has something to do. Waits for nothing, and needs no lock. */
  def isEvacuationDue: Boolean = evacuates && evacuation.isDue

  /** Checks between two epochs whether Spark decommissions executors, so that files of their partitions are fetched meanwhile. */
  def evacuate(): Unit = {
    val before = evacuation.places
    evacuation.look(avoided, fetches = true)
    if (evacuation.places != before) standbys.foreach(_.lookSoon())
  }

  /** Places no more partitions on executors that are about to go. */
  def avoid(executors: Seq[String]): Unit = {
    departing ++= executors.filterNot(avoided)
    avoided ++= executors
  }

  /** Treats executors that were about to go like others again, because they stay. Drained ones still get nothing. */
  def admit(executors: Set[String]): Unit = {
    avoided --= departing.intersect(executors)
    departing --= executors
  }

  /** Begins to carry out what a migration wants. */
  def begin(options: MigrationOptions): Unit = {
    wanted = options.places.map { case (p, executor) => p -> WantedPlace(executor) }
    drained = options.vacate
    departing --= drained
    avoided = leavingWith(options)
    receivers = options.placeOn
    notBefore = options.startEpoch.getOrElse(0L)
    isPrepared = options.isPrepared && !isRealTime
    if (isRealTime && options.isPrepared && options.movesPartitions) logInfo(s"query ${query.id}: in real-time mode, " +
      "the files of partitions that move are not fetched ahead")
    left = wanted.keySet
    isUnderWay = options.movesPartitions
    since = None
  }

  /** Ends the migration. A drained executor still gets nothing, unless the migration was `cancelled`. */
  def end(cancelled: Boolean): Unit = {
    if (cancelled) avoided --= drained
    wanted = Map.empty
    drained = None
    receivers = Nil
    left = Set.empty
    isUnderWay = false
    isPrepared = false
    standbys.foreach(_.lookSoon())
    holdOrRelease()
  }

  /**
   * True if all partitions are where they are wanted, as of the committed epoch. Before the tasks of an epoch have reported, the places of
   * a run's partitions are not known.
   */
  def isDone(committed: Long): Boolean = !isUnderWay || since.exists(_ <= committed) && {
    // Stores come to executors with the tasks of an epoch.
    if (seen < committed) see(committed)
    look(committed)
    left.isEmpty
  }

  /** Tells Spark where partitions are wanted at `epoch`, whose tasks have not begun. */
  def enter(epoch: Long): Unit = {
    // The executor to be emptied may go before its migration has begun.
    if (wanted.nonEmpty || avoided.nonEmpty || isUnderWay && since.isEmpty) {
      val executors = Executors.of(session.sparkContext)
      avoided = avoided.filter(executors.isThere)
      holdOrRelease()
      // No partition returns to a drained executor as long as tasks wait for their places, and their executors live.
      if (wanted.nonEmpty || isUnderWay || epoch % EpochsBetweenLooks == 0 || executors.live.keySet != seenExecutors) {
        see(epoch - 1)
        seenExecutors = executors.live.keySet.toSet
        look(epoch - 1)
        if (epoch >= notBefore) ask(epoch, executors)
        look(epoch - 1)
      }
    }
    if (evacuates) {
      val asked = wanted.collect { case (p, w) if w.askedAt.contains(epoch) => p }.toSet
      evacuation.enter(epoch, avoided, asked)
    }
    holdOrRelease()
  }

  /**
   * Gives partitions of lost executors another executor, unless a standby has taken them over. Called after `enter`, while the epoch is
   * planned. Sends messages only if an executor was lost since the epoch before.
   */
  def leaveLost(): Unit = for (known <- Executors.known(session.sparkContext)) {
    val isDone = present.forall(known) || {
      val executors = Executors.of(session.sparkContext)
      // An executor that joined in between isn't lost.
      Placement.leaveLost(session, operators, partitions, e => known(e) || executors.isThere(e), executors.live -- avoided)
    }
    if (isDone) present = known.toSet
  }

  def close(): Unit = {
    RealTimeQueries.end(this)
    LocalityWait.release(this)
  }

  private def ask(epoch: Long, executors: Executors): Unit = {
    since = since.orElse(Some(epoch))
    lazy val possible = executors.preferred(receivers, avoided, query.id)
    // What leaves a drained executor goes where its files are, if that is known before others fetch them.
    if (drained.nonEmpty) wanted = wanted.map { case (p, w) =>
      val standby = if (w.asked == 0 && !w.isFetched) standbysOf(p).find(possible.contains) else None
      p -> w.copy(executor = standby.getOrElse(w.executor))
    }
    wanted = wanted.filter { case (p, w) => p < partitions && executors.live.contains(w.executor) && !avoided(w.executor) }
    val (kept, given) = wanted.partition { case (p, w) => w.asked < math.max(maxEpochs, 1) }
    val (tried, settled) = given.partition { case (p, _) => isAvoided(p) }
    if (settled.nonEmpty) sayElsewhere(settled, "elsewhere; they stay there")
    if (tried.nonEmpty) sayElsewhere(tried, "on executors that should become empty; others are tried")
    // Partitions without a given place, and those whose new executor is gone or didn't get them.
    val stranded = (0 until partitions).filter(p => !kept.contains(p) && isAvoided(p))
    val others = (0 until partitions).filterNot(stranded.contains)
      .map(p => kept.get(p).map(w => Seq(w.executor)).getOrElse(placesOf(p).toSeq))
    wanted = kept
    if (stranded.nonEmpty) {
      var taken = others
      for ((before, some) <- stranded.groupBy(p => tried.get(p).map(_.executor))) {
        val untried = possible.filterNot(before.contains)
        val found = Placement.spread(some, if (untried.isEmpty) possible else untried, taken, standbysOf)
        taken ++= found.map { case (_, executor) => Seq(executor) }
        wanted ++= found.map { case (p, executor) => p -> WantedPlace(executor) }
      }
    }
    val due = wanted.filter { case (p, w) => isDue(p, w, executors) }
    val cold = due.filter { case (p, w) => isCold(p, w) }.keys
    if (cold.nonEmpty)
      logWarning(s"query ${query.id}: partitions ${cold.toSeq.sorted.mkString(", ")} move without their files, " +
        "because these could not be fetched ahead")
    wanted = wanted.map {
      case (p, w) if due.contains(p) =>
        Placement.prefer(session, operators, p, w.executor, executors.live(w.executor))
        p -> w.copy(askedAt = Some(epoch), asked = w.asked + 1)
      case (p, w) => p -> w.copy(isFetched = isPrepared && placesOf(p).nonEmpty)
    }
  }

  private def sayElsewhere(places: Map[Int, WantedPlace], where: String): Unit =
    logWarning(s"query ${query.id}: partitions ${places.keys.toSeq.sorted.mkString(", ")} were wanted on executors " +
      s"${places.values.map(_.executor).toSeq.distinct.sorted.mkString(", ")} for $maxEpochs epochs, and Spark runs them $where")

  /**
   * True if a partition should move now: it has run and can be rebuilt, and its files or the partition itself have arrived, or nobody
   * waits for the files, or its old executor is gone.
   */
  private def isDue(partition: Int, place: WantedPlace, executors: Executors): Boolean = {
    val now = placesOf(partition)
    def isReady = !isPrepared || place.asked > 0 || standbys.forall(_.isReady(partition, place.executor))
    now.nonEmpty && (now == Set(place.executor) || !now.exists(executors.live.contains) || !isLost(partition) && isReady)
  }

  /** True if the executor to which a partition moves had time to fetch its files, and has none. */
  private def isCold(partition: Int, place: WantedPlace): Boolean = place.isFetched && place.asked == 0 &&
    placesOf(partition) != Set(place.executor) && !standbys.exists(_.hasFiles(partition, place.executor))

  /** Asks where partitions are, once for each store. */
  private def see(committed: Long): Unit = {
    places = Placement.placesOf(session, operators, partitions)
    seen = committed
  }

  /** Lets go of partitions that have arrived. */
  private def look(committed: Long): Unit = {
    wanted = wanted.filterNot { case (p, w) => w.askedAt.exists(_ <= committed) && placesOf(p) == Set(w.executor) }
    val remaining = drained.toSeq.flatMap(e => (0 until partitions).filter(placesOf(_)(e)))
    left = wanted.keySet ++ remaining
  }

  private def standbysOf(partition: Int): Seq[String] =
    standbys.fold(Seq.empty[String])(s => s.of(partition).filter(s.hasFiles(partition, _)))

  private def operators = run.now.operators

  private def partitions = run.now.partitions

  private def isAvoided(partition: Int): Boolean = avoided.nonEmpty && placesOf(partition).exists(avoided)

  private def placesOf(partition: Int): Set[String] = places.lift(partition).getOrElse(Set.empty)

  private def holdOrRelease(): Unit =
    if (!isRealTime && (wanted.nonEmpty || avoided.nonEmpty || evacuation.places.nonEmpty))
      LocalityWait.hold(this, query.id, session.sparkContext)
    else LocalityWait.release(this)
}

private object Relocation {
  /** How often it checks whether anything is on an executor that was drained. */
  private val EpochsBetweenLooks = 8
}

/**
 * @param isFetched whether the executor fetches the partition's files before
 * @param askedAt   the last epoch for which the partition was asked to move there
 * @param asked     for how many epochs it was asked
 */
private[migration] final case class WantedPlace(
    executor: String, isFetched: Boolean = false, askedAt: Option[Long] = None, asked: Int = 0)
