package org.apache.spark.sql.binshift.retention

import java.util.concurrent.{ConcurrentHashMap, CountDownLatch}
import java.util.concurrent.TimeUnit.MILLISECONDS

import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal

import org.apache.hadoop.conf.Configuration

import org.apache.spark.internal.Logging
import org.apache.spark.sql.binshift.internals.CommittedEpoch
import org.apache.spark.sql.execution.streaming.runtime.StreamExecution
import org.apache.spark.sql.execution.streaming.state.{RocksDBConf, StateStoreId}
import org.apache.spark.sql.execution.streaming.state.binshift.{BinshiftException, Faults}
import org.apache.spark.sql.execution.streaming.state.binshift.recovery.{RecoveryCheck, RetainedVersions}
import org.apache.spark.sql.execution.streaming.state.binshift.routing.EpochRouting
import org.apache.spark.util.ThreadUtils

/**
 * Looks whether partitions can be rebuilt from the checkpoint, before others take their bins over and after files were deleted. While a
 * store lives, nobody reads its files, so that nobody else would notice that one of them is gone. Those that cannot be
 * rebuilt are asked for a snapshot ([[snapshotsWanted]]), which they make of what they hold.
 *
 * All requests to the checkpoint are made by threads of its own, one look at a time. A look costs a listing of each partition in
 * question and of those that its bins came from since its last snapshot, and of the files that snapshots consist of.
 *
 * Thread-safe; waits for no request, but in `await`. Each look also covers what is known to be lost.
 *
 * @param stateRoot the checkpoint's directory of state
 * @param conf      that of the query's stores
 * @param retained  how many versions Spark retains
 */
private[binshift] final class SourceCheck(
    query: StreamExecution, stateRoot: String, hadoopConf: Configuration, conf: => RocksDBConf, retained: => Int)
  extends Logging {
  import SourceCheck._

  private lazy val routing = EpochRouting.forReader(stateRoot, hadoopConf)
  private var running = Option.empty[CountDownLatch]
  /** What has been asked for since the look began that is under way. */
  private var pending = Option.empty[Request]
  /** The steps that were looked at last, as of a version. */
  private var answer = Option.empty[(Steps, Long)]
  /** What is known to be missing of partitions. */
  private var lost = Map.empty[Int, String]
  /** When each of them was asked for a snapshot. */
  private var askedAt = Map.empty[Int, Long]

  /**
   * Begins to look at the partitions that give bins in some steps, once the look that is under way is over.
   *
   * @param stores `None` before this run has planned an epoch: nothing is known of stores then, and nothing is looked at
   * @param steps  those of migration `of` from `first` to before `until`, which move `bins`
   */
  def look(stores: Option[Stores], of: String, first: Int, until: Int, bins: Set[Int]): Unit =
    stores.foreach(s => begin(Request(s, Some(Steps(of, first, until, bins)), isOfAll = false)))

  /** Begins to look at all partitions, once the look that is under way is over. */
  def lookAtAll(stores: Option[Stores]): Unit = stores.foreach(s => begin(Request(s, None, isOfAll = true)))

  /** Waits until no look is under way, but not for long. */
  def await(): Unit = synchronized(running).foreach(_.await(MaxWaitMs, MILLISECONDS))

  /** The version as of which the sources of step `index` of migration `of` have been looked at; `None` if they have not been. */
  def lookedAt(of: String, index: Int): Option[Long] = synchronized {
    answer.filter { case (steps, _) => steps.of == of && steps.first <= index && index < steps.until }.map(_._2)
  }

  /** What is missing, in words; empty if all can be rebuilt as far as is known. */
  def whatIsLost: Option[String] = synchronized(lost.toSeq.sorted.headOption.map { case (partition, what) =>
    s"partition $partition${if (lost.size > 1) s" and ${lost.size - 1} more" else ""} cannot be rebuilt from the checkpoint, " +
      s"which lacks $what; a snapshot is made"
  })

  /**
   * The partitions whose stores are to make a snapshot at `epoch`, which is being planned, maybe not for the first time. An upload may take its time, so that one is
   * asked again only if it is still not to be rebuilt some epochs later.
   */
  def snapshotsWanted(stores: => Option[Stores], epoch: Long): Set[Int] = synchronized {
    if (lost.isEmpty) Set.empty
    else {
      val asked = lost.keySet.filter(p => askedAt.get(p).forall(at => at == epoch || epoch - at >= EpochsBetweenAsking))
      askedAt = askedAt.filter(a => lost.contains(a._1)) ++ asked.map(_ -> epoch)
      stores.foreach(s => begin(Request(s, None, isOfAll = false)))
      asked
    }
  }

  private def begin(request: Request): Unit = synchronized {
    pending = Some(pending.fold(request)(_.and(request)))
    if (running.isEmpty) {
      running = Some(new CountDownLatch(1))
      next()
    }
  }

  /** Begins the look that is asked for, or says that there is none. */
  private def next(): Unit = synchronized {
    pending match {
      case Some(request) =>
        pending = None
        Looker.execute { () =>
          try look(request)
          catch {
            case NonFatal(e) => logWarning(s"query ${query.id}: whether its partitions can be rebuilt is not known", e)
          } finally next()
        }
      case None =>
        running.foreach(_.countDown())
        running = None
    }
  }

  /** The newest committed version. Maybe a request to the checkpoint. */
  private def newest: Long = CommittedEpoch.of(query) + 1

  private def look(request: Request): Unit = {
    val version = newest
    Faults.at("sources.look")
    // Without a committed version there is nothing to rebuild.
    val checks = if (version > 0) checksOf(request.stores, version) else Nil
    val known = synchronized(lost.keySet)
    val partitions = checks.headOption.fold(known) { check =>
      known ++ request.steps.fold(Set.empty[Int])(s => check.ownersOf(s.bins)) ++ (if (request.isOfAll) check.all else Nil)
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
      case None => logWarning(s"query ${query.id}: whether its partitions can be rebuilt is not known, since the files of each " +
          s"version that was looked at could have been deleted meanwhile: only $retained are retained")
    }
  }

  private def checksOf(stores: Stores, version: Long): Seq[RecoveryCheck] =
    for ((operator, names) <- stores.names.toSeq; name <- names) yield new RecoveryCheck(
      RetainedVersions.filesOf(StateStoreId(stateRoot, operator, 0, name), routing, conf, hadoopConf, stores.hasIds(version)),
      version)

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
            "the stores of the partition make a snapshot of what they hold, and steps of migrations wait for it; do not stop " +
            "the query until this log says that it can be rebuilt; find out what deletes files of the checkpoint").getMessage)
    for (partition <- before.keys.toSeq.sorted if !lost.contains(partition))
      logWarning(s"query ${query.id}: partition $partition can be rebuilt from the checkpoint again, as of version $version")
  }
}

private[binshift] object SourceCheck {
  /**
   * @param names  of the stores of each operator whose bins move; empty if there is no such operator
   * @param hasIds whether names of files have ids, if a version is the newest committed one
   */
  final case class Stores(names: Map[Long, Seq[String]], hasIds: Long => Boolean)

  /** Those of migration `of` from `first` to before `until`, which move `bins`. */
  private final case class Steps(of: String, first: Int, until: Int, bins: Set[Int])

  /** What is to be looked at besides what is lost. */
  private final case class Request(stores: Stores, steps: Option[Steps], isOfAll: Boolean) {
    def and(later: Request): Request = Request(later.stores, later.steps.orElse(steps), isOfAll || later.isOfAll)
  }

  private val EpochsBetweenAsking = 10
  private val MaxWaitMs = 10000L
  private val MaxThreads = 16

  /** A thread for each query that has something to look for: a file system that does not answer holds up that query alone. */
  private lazy val Looker = ThreadUtils.newDaemonCachedThreadPool("binshift-sources", 16)
}
