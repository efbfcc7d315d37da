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
 * Thread-safe; waits for no request, but in `await`.
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
  private var answer = Option.empty[Answer]
  /** What is known to be missing of partitions. */
  private var lost = Map.empty[Int, String]
  /** When each of them was asked for a snapshot. */
  private var askedAt = Map.empty[Int, Long]

  /**
   * Begins to look at the partitions that give bins in some steps, unless a look is under way.
   *
   * @param steps those of migration `of` from `first` to before `until`, which move `bins`
   */
  def look(stores: Stores, of: String, first: Int, until: Int, bins: Set[Int]): Unit =
    begin(stores, bins.nonEmpty)(_.ownersOf(bins))(version => answer = Some(Answer(of, first, until, version)))

  /** Begins to look at all partitions, unless a look is under way. */
  def lookAtAll(stores: Stores): Unit = begin(stores, isNeeded = true)(_.all)(_ => ())

  /** Waits until no look is under way, but not for long. */
  def await(): Unit = synchronized(running).foreach(_.await(MaxWaitMs, MILLISECONDS))

  /** Whether step `index` of migration `of` may begin; `None` if that is not known, or not since lately. */
  def allows(of: String, index: Int): Option[Boolean] = synchronized {
    answer.filter(a => a.of == of && a.first <= index && index < a.until)
      .filter(committedVersion - _.version <= MaxAge).map(_ => lost.isEmpty)
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
  def snapshotsWanted(stores: Stores, epoch: Long): Set[Int] = synchronized {
    if (lost.isEmpty) Set.empty
    else {
      val asked = lost.keySet.filter(p => askedAt.get(p).forall(at => at == epoch || epoch - at >= EpochsBetweenAsking))
      askedAt = askedAt.filter(a => lost.contains(a._1)) ++ asked.map(_ -> epoch)
      begin(stores, isNeeded = true)(_ => lost.keySet)(_ => ())
      asked
    }
  }

  private def committedVersion: Long = CommittedEpoch.of(query) + 1

  private def begin(stores: Stores, isNeeded: Boolean)(of: RecoveryCheck => Set[Int])(found: Long => Unit): Unit = synchronized {
    val version = committedVersion
    if (stores.names.nonEmpty && (!isNeeded || version == 0)) found(version)
    // Before this run has planned an epoch, nothing is known of stores.
    else if (stores.names.nonEmpty && running.isEmpty) {
      val done = new CountDownLatch(1)
      running = Some(done)
      Looker.execute { () =>
        try look(stores, version, of, found)
        catch {
          case NonFatal(e) => logWarning(s"query ${query.id}: whether version $version can be rebuilt is not known", e)
        } finally {
          synchronized { running = None }
          done.countDown()
        }
      }
    }
  }

  private def look(stores: Stores, version: Long, of: RecoveryCheck => Set[Int], found: Long => Unit): Unit = {
    Faults.at("sources.look")
    val checks =
      for ((operator, names) <- stores.names.toSeq; name <- names) yield new RecoveryCheck(
        RetainedVersions.filesOf(StateStoreId(stateRoot, operator, 0, name), routing, conf, hadoopConf, stores.hasIds), version)
    val partitions = checks.headOption.fold(Set.empty[Int])(of)
    val missing = new ConcurrentHashMap[Int, String]()
    val jobs = for (check <- checks; p <- partitions.toSeq) yield (check, p)
    if (jobs.nonEmpty) ThreadUtils.parmap(jobs, "binshift-sources", math.min(MaxThreads, jobs.size)) { case (check, p) =>
      check.missing(p).foreach(missing.putIfAbsent(p, _))
    }
    // What is not retained any more may have been deleted meanwhile.
    if (missing.isEmpty || committedVersion - version < retained) synchronized {
      val before = lost
      lost = lost -- partitions ++ missing.asScala
      found(version)
      report(before, version)
    }
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
   * @param names  of the stores of each operator whose bins move
   * @param hasIds whether names of files of versions have ids
   */
  final case class Stores(names: Map[Long, Seq[String]], hasIds: Boolean)

  /** What all sources of some steps of a migration have been looked at for, as of a version. */
  private final case class Answer(of: String, first: Int, until: Int, version: Long)

  /** Epochs after which it is looked anew before a step that has waited for something else meanwhile. */
  private val MaxAge = 50
  private val EpochsBetweenAsking = 10
  private val MaxWaitMs = 10000L
  private val MaxThreads = 16

  /** A thread for each query that has something to look for: a file system that does not answer holds up that query alone. */
  private lazy val Looker = ThreadUtils.newDaemonCachedThreadPool("binshift-sources", 16)
}
