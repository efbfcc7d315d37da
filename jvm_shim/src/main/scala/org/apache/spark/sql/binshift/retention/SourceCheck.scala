package org.apache.spark.sql.binshift.retention

import java.util.concurrent.{ConcurrentHashMap, CountDownLatch}
import java.util.concurrent.TimeUnit.MILLISECONDS

import scala.jdk.CollectionConverters._

import org.apache.hadoop.conf.Configuration

import org.apache.spark.sql.binshift.internals.CommittedEpoch
import org.apache.spark.sql.binshift.routing.{RunState, StatefulOperators}
import org.apache.spark.sql.execution.streaming.operators.stateful.StateStoreWriter
import org.apache.spark.sql.execution.streaming.runtime.StreamExecution
import org.apache.spark.sql.execution.streaming.state.{RocksDBConf, StateStoreId}
import org.apache.spark.sql.execution.streaming.state.binshift.{BinshiftException, Faults, OrWarn}
import org.apache.spark.sql.execution.streaming.state.binshift.recovery.{RecoveryCheck, RetainedVersions}
import org.apache.spark.sql.execution.streaming.state.binshift.routing.EpochRouting
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.util.ThreadUtils

/**
 * Checks whether partitions can be rebuilt from the checkpoint, before others take over their bins, after files were deleted, and from
 * time to time. While a store lives, nobody reads its files, so nobody else would notice that one of them is missing. Partitions that
 * can't be rebuilt are asked for a snapshot ([[snapshotsWanted]]), which their stores make from the state that they have.
 *
 * Its own threads make all requests to the checkpoint, one look at a time. A look lists the directories of the partitions in
 * question, and of those from which their bins came since the last snapshot. It also reads the lists of files of the snapshots
 * that a recovery would begin with.
 *
 * Thread-safe. Only `await` waits for a look. Each look also checks the partitions that are known to lack files.
 *
 * @param stateRoot the checkpoint's directory of state
 * @param conf      the configuration of the query's stores
 * @param retained  how many versions Spark retains
 */
private[binshift] final class SourceCheck(
    query: StreamExecution, run: RunState, stateRoot: String, hadoopConf: Configuration, conf: => RocksDBConf, retained: => Int)
  extends OrWarn {
  import SourceCheck._

  private lazy val routing = EpochRouting.forReader(stateRoot, hadoopConf)
  private var running = Option.empty[CountDownLatch]
  /** The looks that were asked for since the one began that is under way. */
  private var pending = Option.empty[Request]
  /** The steps that were looked at last, and the version. */
  private var answer = Option.empty[(Steps, Long)]
  /** The missing files that are known, by partition. */
  private var lost = Map.empty[Int, String]
  /** The epochs at which each of these partitions was first and last asked for a snapshot. */
  private var asked = Map.empty[Int, (Long, Long)]
  /** When partitions were watched last, or this run began, and the first one to be watched next. Used by the stream's thread. */
  private var watchedAtNs = System.nanoTime()
  private var watchedNext = 0

  /**
   * Begins to check the partitions that give bins away in some steps, after the look that is under way.
   *
   * @param of    the migration that the steps belong to
   * @param first its steps from this one to before `until` are checked, which move `bins`
   */
  def look(of: String, first: Int, until: Int, bins: Set[Int]): Unit = begin(Some(Steps(of, first, until)), _.ownersOf(bins))

  /** Begins to check all partitions, after the look that is under way. */
  def lookAtAll(): Unit = begin(None, _.all)

  /**
   * Begins to check the next few of `n` partitions, one after the other in the course of time, if the last ones were checked an interval
   * ago. Others than the query may delete files of the checkpoint, such as rules of an object store, and nobody else notices as long as
   * the state is in memory, where a snapshot of it can still be made.
   *
   * @param intervalMs the interval of Spark's maintenance
   */
  def keepWatch(n: Int, intervalMs: Long): Unit = {
    val now = System.nanoTime()
    if (now - watchedAtNs >= intervalMs * 1000000L) {
      watchedAtNs = now
      val first = if (watchedNext < n) watchedNext else 0
      watchedNext = first + WatchedAtOnce
      begin(None, _.all.filter(p => first <= p && p < first + WatchedAtOnce))
    }
  }

  /** Waits until no look is under way, but only for a short time. */
  def await(): Unit = synchronized(running).foreach(_.await(MaxWaitMs, MILLISECONDS))

  /** The version at which the sources of step `index` of migration `of` were checked; `None` if they haven't been. */
  def lookedAt(of: String, index: Int): Option[Long] = synchronized {
    answer.filter { case (steps, _) => steps.of == of && steps.first <= index && index < steps.until }.map(_._2)
  }

  /** True if the checkpoint is known to lack files of a partition. */
  def isLost(partition: Int): Boolean = synchronized(lost.contains(partition))

  /** Describes what is missing; empty if all partitions can be rebuilt, as far as is known. */
  def whatIsLost: Option[String] = synchronized(lost.toSeq.sorted.headOption.map { case (partition, what) =>
    s"partition $partition${if (lost.size > 1) s" and ${lost.size - 1} more" else ""} cannot be rebuilt from the checkpoint, " +
      s"which lacks $what; ${repair(partition)}"
  })

  /** Jobs that a sink submits from threads of its own carry no requests, so their stores only make the snapshots that are due. */
  private def repair(partition: Int): String = asked.get(partition) match {
    case None => "the next epoch asks its stores for a snapshot"
    case Some((first, last)) if last == first => s"epoch $first has asked its stores for a snapshot"
    case Some((first, last)) =>
      s"epochs $first to $last have asked its stores for a snapshot in vain, so it waits for the one that is due after " +
        s"${conf.minDeltasForSnapshot} epochs (${SQLConf.STATE_STORE_MIN_DELTAS_FOR_SNAPSHOT.key})"
  }

  /**
   * The partitions whose stores should make a snapshot at `epoch`, which is being planned, perhaps not for the first time. An
   * upload may take a while, so a partition is asked again only if it still can't be rebuilt some epochs later.
   */
  def snapshotsWanted(epoch: Long): Set[Int] = synchronized {
    if (lost.isEmpty) Set.empty
    else {
      val wanted =
        lost.keySet.filter(p => asked.get(p).forall { case (_, at) => at == epoch || epoch - at >= EpochsBetweenAsking })
      asked = asked.filter(a => lost.contains(a._1)) ++ wanted.map(p => p -> (asked.get(p).fold(epoch)(_._1), epoch))
      begin(None, _ => Set.empty)
      wanted
    }
  }

  /** Checks nothing before this run has planned an epoch, because stores aren't known until then. */
  private def begin(steps: Option[Steps], partitions: RecoveryCheck => Set[Int]): Unit = for (stores <- stores) synchronized {
    val request = Request(stores, steps, partitions)
    pending = Some(pending.fold(request)(_.and(request)))
    if (running.isEmpty) {
      running = Some(new CountDownLatch(1))
      next()
    }
  }

  /** If a checkpoint changes its format, the version that this run loads first has no ids in its file names, and later versions have. */
  private def stores: Option[Stores] = {
    val now = run.now
    val formatHasIds = query.sparkSessionForStream.sessionState.conf.stateStoreCheckpointFormatVersion >= 2
    Option.when(now.operators.nonEmpty && now.layout.isDefined)(
      Stores(now.binned, version => formatHasIds && (now.hasIds || now.epoch.exists(_ < version))))
  }

  /** Begins the next look, if one was asked for; otherwise wakes those who wait for the end. */
  private def next(): Unit = synchronized {
    pending match {
      case Some(request) =>
        pending = None
        Looker.execute { () =>
          try orWarn(s"query ${query.id}: could not check whether its partitions can be rebuilt")(look(request))
          finally next()
        }
      case None =>
        running.foreach(_.countDown())
        running = None
    }
  }

  /** The newest committed version. May make a request to the checkpoint. */
  private def newest: Long = CommittedEpoch.of(query) + 1

  private def look(request: Request): Unit = {
    val version = newest
    Faults.at("sources.look")
    // There is nothing to rebuild before a version is committed.
    val checks = if (version > 0) checksOf(request.stores, version) else Nil
    val known = synchronized(lost.keySet)
    val partitions = checks.headOption.fold(known) { check =>
      known ++ request.partitions(check)
    }
    RecoveryCheck.confirmed(missing(checks, partitions), () => newest, retained) { (version, suspects) =>
      missing(checksOf(request.stores, version), suspects)
    } match {
      case Some(missing) => synchronized {
          val before = lost
          lost = lost -- partitions ++ missing
          request.steps.foreach(s => answer = Some((s, version)))
          report(before, version)
        }
      case None => logWarning(
          s"query ${query.id}: could not check whether its partitions can be rebuilt, because files of each version " +
            s"that was checked may have been deleted meanwhile; $retained versions are retained, so raise " +
            SQLConf.MIN_BATCHES_TO_RETAIN.key)
    }
  }

  private def checksOf(stores: Stores, version: Long): Seq[RecoveryCheck] =
    for {
      op <- stores.operators
      name <- op.stateStoreNames
      store = StateStoreId(stateRoot, StatefulOperators.idOf(op), 0, name)
      files = RetainedVersions.filesOf(store, routing, conf, hadoopConf, stores.hasIds(version))
    } yield new RecoveryCheck(files, version, StatefulOperators.hasFamilies(op))

  private def missing(checks: Seq[RecoveryCheck], partitions: Set[Int]): Map[Int, String] = {
    val found = new ConcurrentHashMap[Int, String]()
    val jobs = for (check <- checks; p <- partitions.toSeq) yield (check, p)
    if (jobs.nonEmpty) ThreadUtils.parmap(jobs, "binshift-sources", math.min(MaxThreads, jobs.size)) { case (check, p) =>
      check.missing(p).foreach(found.putIfAbsent(p, _))
    }
    found.asScala.toMap
  }

  private def report(before: Map[Int, String], version: Long): Unit = {
    for ((partition, what) <- lost.toSeq.sorted if !before.contains(partition))
      logError(BinshiftException("STATE_NOT_RECOVERABLE", "partition" -> partition).migration(
          s"version $version of partition $partition of query ${query.id} cannot be rebuilt from the checkpoint, which lacks $what: " +
            "the partition's stores make a snapshot of the state that they have, and steps of migrations wait for it; do not stop " +
            "the query until this log says that the partition can be rebuilt, and find out what deletes files of the " +
            "checkpoint").getMessage)
    for (partition <- before.keys.toSeq.sorted if !lost.contains(partition))
      logWarning(s"query ${query.id}: partition $partition can be rebuilt from the checkpoint again, as of version $version")
  }
}

private object SourceCheck {
  /**
   * @param operators those whose bins move
   * @param hasIds    whether names of files contain ids when the given version is the newest committed one
   */
  private final case class Stores(operators: Seq[StateStoreWriter], hasIds: Long => Boolean)

  /** Steps of migration `of`, from `first` to before `until`. */
  private final case class Steps(of: String, first: Int, until: Int)

  /** The partitions that a look checks, besides those that are known to lack files. */
  private final case class Request(stores: Stores, steps: Option[Steps], partitions: RecoveryCheck => Set[Int]) {
    /** Of steps, the later ones are looked at, as those before have been taken or given up. */
    def and(later: Request): Request =
      Request(later.stores, later.steps.orElse(steps), check => partitions(check) ++ later.partitions(check))
  }

  private val EpochsBetweenAsking = 10
  /** Bounds how long a step's own look waits for a watch, and how many listings are in memory. */
  private val WatchedAtOnce = 16
  private val MaxWaitMs = 10000L
  private val MaxThreads = 16

  /** Has a thread for each query that checks something, so that a file system that doesn't answer only holds up its own query. */
  private lazy val Looker = ThreadUtils.newDaemonCachedThreadPool("binshift-sources", 16)
}
