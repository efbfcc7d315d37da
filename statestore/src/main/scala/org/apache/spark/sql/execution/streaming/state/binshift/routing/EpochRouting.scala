package org.apache.spark.sql.execution.streaming.state.binshift.routing

import java.lang.ref.WeakReference
import java.util.concurrent.ConcurrentHashMap

import scala.jdk.CollectionConverters._

import org.apache.hadoop.conf.Configuration

import org.apache.spark.sql.execution.streaming.state.binshift.{BinshiftConf, BinshiftException}
import org.apache.spark.sql.execution.streaming.state.binshift.checkpoint.{CheckpointIds, ControlDir, EntryName, Layout, RunHistory}
import org.apache.spark.sql.execution.streaming.state.StateStoreId
import org.apache.spark.TaskContext
import org.apache.spark.util.CollectionAccumulator

/**
 * The routing of one run of a query, as its executors see it.
 *
 * Thread-safe; shared by all stores of the run in this JVM, so that a table is read once per executor
 * and not once per store. Keeps the last [[EpochRouting.MaxEntries]] tables.
 */
private[sql] final class EpochRouting(
    runId: String,
    log: RoutingLog,
    aside: RoutingLog,
    readIds: Long => CheckpointIds,
    readOrders: () => Seq[ShippingOrder],
    readRuns: () => RunHistory,
    ownsEpoch: (Long, Boolean) => Boolean,
    loggedName: Long => Option[EntryName],
    readLayout: () => Option[Layout]) {
  private val entries = new ConcurrentHashMap[Long, RoutingEntry]()
  private val ids = new ConcurrentHashMap[Long, CheckpointIds]()
  private val changedKeys = new ConcurrentHashMap[Long, Boolean]()
  /** Entries that are known to follow the one that is listed before them. */
  private val neighbours = ConcurrentHashMap.newKeySet[Long]()
  private var orders = Seq.empty[ShippingOrder]
  @volatile private var listing = Listing(-1, Nil)
  /** Those that were asked for last, as long as some recovery uses them: there may be many tables. */
  private var latestOwners = new WeakReference[Owners](null)

  /** As it is while the run lasts: the driver writes it before the first task of the run, if it does. Read once. */
  lazy val layout: Option[Layout] = readLayout()

  /** The id of the run. */
  def run: String = runId

  /** The table in force at `epoch` and, if it took effect at `epoch`, the one that it replaced. */
  def at(epoch: Long): EpochTables = {
    val named = hinted(epoch)
    val (now, before) = named.getOrElse(listed(epoch))
    EpochTables(entry(now).table, before.map(entry(_).table))
  }

  /**
   * The entries in force as the driver named them when it planned the batch, which saves listing the
   * log. A job that the user submits from a thread of a foreign pool may carry the property of
   * another batch or none, hence the check of run and epoch.
   */
  private def hinted(epoch: Long): Option[(Long, Option[Long])] =
    hint.filter(_.epoch == epoch).map(h => (h.now, h.before))

  private def hint: Option[RoutingHint] =
    Option(TaskContext.get()).flatMap(c => Option(c.getLocalProperty(BinshiftConf.RoutingHint)))
      .flatMap(RoutingHint.parse).filter(_.runId == runId)

  private def listed(epoch: Long): (Long, Option[Long]) = {
    val upTo = epochsUpTo(epoch)
    val now = upTo.lastOption.getOrElse(missing(epoch))
    if (now == epoch && upTo.size == 1 && entry(now).step.isDefined) missing(epoch - 1)
    val before = if (now == epoch) upTo.dropRight(1).lastOption else None
    before.foreach(requireNeighbours(_, now))
    // Entries of epochs after the one that runs may be left of epochs that were lost.
    val running = hint.fold(Long.MaxValue)(_.epoch)
    listing.epochs.find(_ > epoch).filter(_ <= running).foreach(requireNeighbours(now, _))
    (now, before)
  }

  /**
   * No entry between two that are next to each other in the listing is lost, and none is there that is not of the log.
   * The later one may be that of an epoch that has not begun: it is not kept, as another one may come in its place, and
   * may be gone.
   */
  private def requireNeighbours(earlier: Long, later: Long): Unit =
    requireNeighbours(earlier, later, Option(entries.get(later)).orElse(log.read(later)))

  private def requireNeighbours(
      earlier: Long, later: Long, entry: => Option[RoutingEntry]): Unit = if (!neighbours.contains(later)) {
    for (before <- entry.map(_.previous) if before >= 0) {
      if (before > earlier) missing(before)
      if (before < earlier) throw BinshiftException("ROUTING_LOG_DAMAGED", "epoch" -> later).configuration(
        s"the routing log has an entry for epoch $earlier, but that of epoch $later follows the one of epoch $before: one of " +
          "the two is not of this query; restore <checkpoint>/binshift/routing from a copy of the checkpoint")
    }
    neighbours.add(later)
  }

  /**
   * The log is listed again only for an epoch that had not begun when it was listed last, or if it lacks what the driver
   * names. A task that replays asks for one epoch after the other, all of which had begun before its own.
   */
  private def epochsUpTo(epoch: Long): Seq[Long] = {
    // A thread of a foreign pool may carry the hint of an epoch of long ago, the entries of which are gone for good.
    val running = hint.filter(_.epoch >= epoch)
    val named = running.flatMap(_.inForceAt(epoch))
    def isOld: Boolean = epoch > listing.upTo || named.exists(e => !listing.epochs.contains(e))
    if (isOld) synchronized {
      if (isOld) {
        val listed = log.epochs
        // What was set aside comes back once its epoch is committed: the log is to be listed again for that epoch.
        listing = Listing(running.fold(epoch)(h => if (listed.contains(h.now)) h.epoch else math.min(epoch, h.now - 1)), listed)
      }
    }
    val epochs = listing.epochs.filter(_ <= epoch)
    epochs ++ named.filterNot(epochs.contains)
  }

  /** Who owned which bin, at `version` and before. */
  def owners(version: Long): Owners = {
    val epochs = epochsUpTo(version - 1)
    if (epochs.isEmpty) missing(version - 1)
    synchronized {
      Option(latestOwners.get).filter(_.epochs == epochs).getOrElse {
        val before = epochs.drop(1).zip(epochs).toMap
        val owners = new Owners(epochs.toIndexedSeq,
          { e =>
            val found = entry(e)
            before.get(e).foreach(requireNeighbours(_, e, Some(found)))
            found
          })
        latestOwners = new WeakReference(owners)
        owners
      }
    }
  }

  /**
   * How many partitions committed `version`, by the entry in force alone: a recovery looks at the others, and notices a hole.
   */
  def partitionsOf(version: Long): Option[Int] = epochsUpTo(version - 1).lastOption.map(entry(_).table.partitions)

  /**
   * Fails unless the table by which `version` is read is the one that its epoch was run with, as far as the log of offsets has it:
   * an entry may be lost, with no later one that names it, or the log of routing be older than the checkpoint. For readers;
   * the driver looks itself when a run begins. Where nothing is known of an epoch, the one before it is looked at.
   */
  def requireLogged(version: Long): Unit = {
    val firstBinned = layout.flatMap(_.takenOverAt).getOrElse(0L)
    for {
      (epoch, name) <- Iterator.iterate(version - 1)(_ - 1).take(EpochRouting.MaxLogged).takeWhile(_ >= firstBinned)
        .flatMap(e => loggedName(e).map(e -> _)).nextOption()
      found = epochsUpTo(epoch).lastOption.map(entry(_).name) if !found.contains(name)
    } throw BinshiftException("ROUTING_LOG_DAMAGED", "epoch" -> name.epoch).configuration(
      s"epoch $epoch was run with the routing table of epoch ${name.epoch} (${name.render}), but the newest entry up to it in " +
        s"the routing log is ${found.fold("none")(_.render)}; " +
        (if (aside.read(name.epoch).exists(_.name == name))
           "another driver has set it aside, and the query puts it back with its next epoch or start; read again then"
         else "restore <checkpoint>/binshift/routing from a copy of the checkpoint"))
  }

  /** The epoch of the newest entry, listed anew. */
  def newestEntry: Option[Long] = log.epochs.lastOption

  /** Says once for each operator of the run that its keys change; whoever asks goes on when `say` is done. */
  def sayOfChangedKeys(operator: Long)(say: => Unit): Unit = changedKeys.computeIfAbsent(operator,
    _ => {
      say
      true
    })

  /** The largest number of partitions of any epoch from `epoch` on. */
  def partitionsSince(epoch: Long): Int = {
    val (before, after) = log.epochs.partition(_ <= epoch)
    (before.lastOption ++ after).flatMap(log.read).map(_.table.partitions).max
  }

  /**
   * Whether a later run of the query makes `version` anew; reads it from the checkpoint.
   *
   * @param hasIds whether the version's files have ids in their names
   */
  def isDisowned(version: Long, hasIds: Boolean): Boolean =
    readRuns().disowns(version, runId) && !ownsEpoch(version - 1, hasIds)

  /** What the jobs of `epoch` say about shipping; `None` for jobs from threads of a foreign pool. */
  def shippingHints(epoch: Long): Option[Seq[ShippingHint]] =
    Option(TaskContext.get()).flatMap(c => Option(c.getLocalProperty(BinshiftConf.ShippingHint)))
      .flatMap(ShippingHint.parse(_, runId, epoch))

  /** Where the stores of `epoch` send their statistics; `None` for jobs from threads of a foreign pool. */
  def reportAddress(epoch: Long): Option[CollectionAccumulator[Array[Byte]]] = ReportAddress.ofTask(runId, epoch)

  /** How many of its hottest keys a store is to report at `epoch`; mostly 0. */
  def keysWanted(epoch: Long): Int = ReportAddress.keysWanted(runId, epoch)

  /** The order `id`; `None` if the driver has replaced it since. */
  def shippingOrder(id: String): Option[ShippingOrder] = synchronized {
    if (!orders.exists(_.id == id)) orders = readOrders()
    orders.find(_.id == id)
  }

  private def entry(epoch: Long): RoutingEntry = {
    // In real-time mode a driver that was started by mistake may have set it aside since this run's driver named it.
    def fromAside = if (hint.exists(_.inForceAt(epoch).contains(epoch))) aside.read(epoch) else None
    val found = entries.computeIfAbsent(epoch, e => log.read(e).orElse(fromAside).getOrElse(missing(e)))
    dropOld(entries)
    found
  }

  /** The ids with which `version` was committed; only asked for under checkpoint format 2. */
  def checkpointIds(version: Long): CheckpointIds = {
    val found = ids.computeIfAbsent(version, v => readIds(v))
    dropOld(ids)
    found
  }

  /** The id with which `version` of a store was committed; `None` if the checkpoint has it no more. */
  def committedId(store: StateStoreId, version: Long): Option[String] =
    try Some(checkpointIds(version).of(store))
    catch { case _: BinshiftException => None }

  private def dropOld(cache: ConcurrentHashMap[Long, _]): Unit =
    if (cache.size > EpochRouting.MaxEntries) {
      cache.keySet.asScala.toSeq.sorted.dropRight(EpochRouting.MaxEntries).foreach(e => cache.remove(e))
    }

  private def missing(epoch: Long): Nothing = throw BinshiftException("ROUTING_LOG_DAMAGED", "epoch" -> epoch).configuration(
    s"the routing log has no entry for epoch $epoch; restore <checkpoint>/binshift/routing from a " +
      "copy of the checkpoint")
}

/**
 * @param now    the table in force
 * @param before the table in force one epoch earlier, if it was another one
 */
private[sql] final case class EpochTables(now: RoutingTable, before: Option[RoutingTable])

/**
 * What a batch's jobs carry as a local property: the epochs of the routing-log entries in force.
 *
 * @param before the entry that `now` replaces at this very epoch, if it does
 */
private[sql] final case class RoutingHint(runId: String, epoch: Long, now: Long, before: Option[Long]) {
  def render: String = s"$runId:$epoch:$now:${before.getOrElse(-1L)}"

  /** The newest of these entries at or before `epoch`, which is not later than the hint's own. */
  def inForceAt(epoch: Long): Option[Long] = if (now <= epoch) Some(now) else before.filter(_ <= epoch)
}

private[sql] object RoutingHint {
  def parse(text: String): Option[RoutingHint] = text.split(':') match {
    case Array(run, epoch, now, before) =>
      Some(RoutingHint(run, epoch.toLong, now.toLong, Some(before.toLong).filter(_ >= 0)))
    case _ => None
  }
}

/** @param upTo epochs up to this one had been decided when `epochs` were listed, which may have more */
private final case class Listing(upTo: Long, epochs: Seq[Long])

private[sql] object EpochRouting {
  /** Tables kept per run: those in force at this epoch and the last, and some for retried tasks. */
  private val MaxEntries = 16

  /** Epochs that are looked at for the name of an entry: it is known of all but first ones of runs of long ago. */
  private val MaxLogged = 8

  /** Runs kept per JVM; a run that is dropped while it is active is read again when it is needed. */
  private val MaxRuns = 32

  private val runs = new java.util.LinkedHashMap[String, EpochRouting](MaxRuns, 0.75f, true) {
    override def removeEldestEntry(e: java.util.Map.Entry[String, EpochRouting]): Boolean =
      size > MaxRuns
  }

  def forRun(runId: String, stateRoot: String, hadoopConf: Configuration): EpochRouting =
    runs.synchronized(runs.computeIfAbsent(runId, make(_, stateRoot, hadoopConf)))

  /** For a store that only reads what is committed. */
  def forReader(stateRoot: String, hadoopConf: Configuration): EpochRouting =
    make("none", stateRoot, hadoopConf)

  private def make(runId: String, stateRoot: String, hadoopConf: Configuration): EpochRouting = {
    val dir = ControlDir.ofStateRoot(stateRoot, hadoopConf)
    new EpochRouting(
      runId, new RoutingLog(dir), new RoutingLog(dir, RoutingLog.Aside), CheckpointIds.read(dir, _),
      () => ShippingOrder.read(dir), () => RunHistory.read(dir), RunHistory.ownsEpoch(dir, _, runId, _),
      RunHistory.entryAt(dir, _), () => Layout.read(dir))
  }
}
