package org.apache.spark.sql.execution.streaming.state.binshift.routing

import java.lang.ref.WeakReference
import java.util.concurrent.ConcurrentHashMap

import scala.jdk.CollectionConverters._

import org.apache.hadoop.conf.Configuration

import org.apache.spark.sql.execution.streaming.state.binshift.{BinshiftConf, BinshiftException}
import org.apache.spark.sql.execution.streaming.state.binshift.checkpoint._
import org.apache.spark.sql.execution.streaming.state.StateStoreId
import org.apache.spark.TaskContext
import org.apache.spark.util.CollectionAccumulator

/**
 * The routing of one run of a query, as its executors see it.
 *
 * To find the entry that was in force at an epoch, it goes back from a later one, entry by entry. A task starts from the entry that
 * the driver has named to it; other callers start from the entry that the log of offsets or a claim names. The directory of entries
 * doesn't tell what is in force.
 *
 * Thread-safe; shared by all stores of the run in this JVM, so that a table is read once per executor
 * and not once per store. Keeps the last [[EpochRouting.MaxEntries]] tables.
 */
private[sql] final class EpochRouting(
    runId: String,
    log: RoutingLog,
    readIds: Long => CheckpointIds,
    readOrders: () => Seq[ShippingOrder],
    readLogged: () => LoggedEpochs,
    readLayout: () => Option[Layout],
    val savepoints: Savepoints) {
  private val entries = new ConcurrentHashMap[EntryName, RoutingEntry]()
  private val ids = new ConcurrentHashMap[Long, CheckpointIds]()
  private val changedKeys = new ConcurrentHashMap[Long, Boolean]()
  /** The times at which the epochs of this run were logged. */
  private val loggedAt = new ConcurrentHashMap[Long, Option[Long]]()
  private var orders = Seq.empty[ShippingOrder]
  /** The newest entry that is known to have been in force. */
  @volatile private var newest = Option.empty[NamedEntry]
  /** The owners that were asked for last. Weak, because they may hold many tables, and are only needed while a recovery uses them. */
  private var latestOwners = new WeakReference[Owners](null)

  /** The layout; read once. It doesn't change during a run, because the driver writes it, if at all, before the first task. */
  lazy val layout: Option[Layout] = readLayout()

  /** The id of the run. */
  def run: String = runId

  /** True if `epoch` has begun, as far as the tasks know that ran here. */
  def hasBegun(epoch: Long): Boolean = newest.exists(_.at >= epoch)

  /** The table in force at `epoch` and, if it took effect at `epoch`, the one that it replaced. */
  def at(epoch: Long): EpochTables = {
    val owners = this.owners(epoch + 1)
    val now = owners.at(epoch + 1)
    val replaces = owners.epoch(now) == epoch && owners.isAfterAnother(now)
    EpochTables(owners.table(now), Option.when(replaces)(owners.table(now - 1)))
  }

  /**
   * The entry in force, as the driver named it when it planned the batch. A job that the user submits from a thread of a foreign pool
   * may carry the property of another batch or none, so the run is checked. A property of an earlier batch is right for the epochs
   * up to that batch.
   */
  private def hint: Option[RoutingHint] =
    Option(TaskContext.get()).flatMap(c => Option(c.getLocalProperty(BinshiftConf.RoutingHint)))
      .flatMap(RoutingHint.parse).filter(_.runId == runId)

  /** An entry that was in force at `epoch` or later; if none is known, the newest known one before it. */
  private def named(epoch: Long): NamedEntry = {
    def known = newest.filter(_.at >= epoch)
    for (told <- hint if !newest.exists(_.at >= told.epoch) || !loggedAt.containsKey(told.epoch)) synchronized {
      if (!newest.exists(_.at >= told.epoch)) newest = Some(NamedEntry(told.epoch, told.now))
      loggedAt.put(told.epoch, told.loggedAtMs)
      loggedAt.keySet.removeIf(_ < told.epoch - EpochRouting.MaxLoggedAt)
    }
    known.getOrElse(synchronized {
      known.getOrElse {
        val found =
          readLogged().near(epoch, layout.flatMap(_.takenOverAt).getOrElse(0L), log.unnamed(_).isDefined).orElse(unnamed(epoch))
            .getOrElse(throw Owners.missing(epoch))
        // If the epoch isn't logged yet, this is the newest entry before it.
        newest = (newest.toSeq :+ found).maxByOption(_.at)
        newest.get
      }
    })
  }

  /** In a checkpoint so old that nothing names an entry, the newest one up to the epoch is in force. */
  private def unnamed(epoch: Long): Option[NamedEntry] = log.names.filter(_.epoch <= epoch).lastOption.map(NamedEntry(epoch, _))

  /** The owners of bins, at `version` and before. */
  def owners(version: Long): Owners = {
    val name = named(version - 1)
    val head = entry(name.entry).getOrElse(throw lost(name))
    def known = Option(latestOwners.get).filter(_.newest.name == head.name)
    known.getOrElse(synchronized {
      known.getOrElse {
        val before = Option(latestOwners.get).filter(o => head.follows(o.newest))
        val owners = before.fold(new Owners(Vector(head), entry))(_.followedBy(head))
        latestOwners = new WeakReference(owners)
        owners
      }
    })
  }

  /** The number of partitions that committed `version`. */
  def partitionsOf(version: Long): Option[Int] = {
    val owners = this.owners(version)
    owners.find(version).map(owners.table(_).partitions)
  }

  /** Fails if the entry that was in force at the epoch of `version` is missing. Readers call it before they read anything. */
  def requireLogged(version: Long): Unit = owners(version).at(version)

  /** Runs `say` once for each operator of the run, to report that its keys change. Other callers wait until `say` is done. */
  def sayOfChangedKeys(operator: Long)(say: => Unit): Unit = changedKeys.computeIfAbsent(operator,
    _ => {
      say
      true
    })

  /** True if this run has made a table durable for the epoch after `epoch`. */
  def hasStepAfter(epoch: Long): Boolean = log.allOf(epoch + 1).exists(_.run.contains(runId))

  /** The existing entries; lists them. */
  def listed: Seq[EntryName] = log.names

  /** The largest number of partitions of any epoch from `epoch` on, including entries that nothing names yet. */
  def partitionsSince(epoch: Long): Int =
    (partitionsOf(epoch + 1) ++ log.names.filter(_.epoch > epoch).flatMap(log.unnamed).map(_.table.partitions)).max

  /**
   * True if the epoch of `version` was logged again since this run has run it, so that the query continues with another content.
   * Reads the checkpoint.
   *
   * @param hasIds    whether the version's files have ids in their names. If so, nobody reads those of attempts that aren't committed.
   * @param isWritten whether a file of the version exists already. It is kept if Spark has purged the epoch from its log, because
   *                  the epoch was committed long ago then, and others may rely on the file.
   */
  def isDisowned(version: Long, hasIds: Boolean, isWritten: Boolean): Boolean = !hasIds && {
    val ranAtMs = this.ranAtMs(version - 1)
    if (isWritten) readLogged().isLoggedAnew(version - 1, runId, ranAtMs)
    else !readLogged().owns(version - 1, runId, ranAtMs)
  }

  /** When `epoch` was logged that this run has run; `None` if that is not known. */
  def ranAtMs(epoch: Long): Option[Long] = Option(loggedAt.get(epoch)).flatten

  /** The announcements of shipping orders that the jobs of `epoch` carry; `None` for jobs from threads of a foreign pool. */
  def shippingHints(epoch: Long): Option[Seq[ShippingHint]] =
    Option(TaskContext.get()).flatMap(c => Option(c.getLocalProperty(BinshiftConf.ShippingHint)))
      .flatMap(ShippingHint.parse(_, runId, epoch))

  /** Returns true if the store of `partition` should make a snapshot at `epoch`; false in jobs from threads of a foreign pool. */
  def wantsSnapshot(epoch: Long, partition: Int): Boolean = hint.exists(h => h.epoch == epoch && h.snapshots(partition))

  /** The address to which the stores of `epoch` send their statistics; `None` for jobs from threads of a foreign pool. */
  def reportAddress(epoch: Long): Option[CollectionAccumulator[Array[Byte]]] = ReportAddress.ofTask(runId, epoch)

  /** How many of its hottest keys a store should report at `epoch`; usually 0. */
  def keysWanted(epoch: Long): Int = ReportAddress.keysWanted(runId, epoch)

  /** The order `id`; `None` if the driver has replaced it since. */
  def shippingOrder(id: String): Option[ShippingOrder] = synchronized {
    if (!orders.exists(_.id == id)) orders = readOrders()
    orders.find(_.id == id)
  }

  /** Doesn't remember that an entry is missing, because it may appear later. */
  private def entry(name: EntryName): Option[RoutingEntry] = Option(entries.get(name)).orElse {
    // Several tasks may ask at once. Entries of older versions are also asked for by their epochs.
    val found = Option(entries.computeIfAbsent(name, log.read(_).orNull))
    if (entries.size > EpochRouting.MaxEntries) {
      entries.keySet.asScala.toSeq.sortBy(_.epoch).dropRight(EpochRouting.MaxEntries).foreach(n => entries.remove(n))
    }
    found
  }

  private def lost(name: NamedEntry): BinshiftException =
    BinshiftException("ROUTING_LOG_DAMAGED", "epoch" -> name.entry.epoch).configuration(
      s"epoch ${name.at} was run with the routing table of epoch ${name.entry.epoch} (${name.entry.render}), which is not in the " +
        "routing log: it was lost or changed; restore <checkpoint>/binshift/routing from a copy of the checkpoint")

  /** The ids with which `version` was committed; only called under checkpoint format 2. */
  def checkpointIds(version: Long): CheckpointIds = {
    val found = ids.computeIfAbsent(version, v => readIds(v))
    if (ids.size > EpochRouting.MaxEntries)
      ids.keySet.asScala.toSeq.sorted.dropRight(EpochRouting.MaxEntries).foreach(v => ids.remove(v))
    found
  }

  /** The id with which `version` of a store was committed; `None` if the checkpoint no longer has it. */
  def committedId(store: StateStoreId, version: Long): Option[String] =
    try Some(checkpointIds(version).of(store))
    catch { case _: BinshiftException => None }
}

/**
 * @param now    the table in force
 * @param before the table in force one epoch earlier, if that was a different one
 */
private[sql] final case class EpochTables(now: RoutingTable, before: Option[RoutingTable])

/**
 * Names the routing entry in force at `epoch`. A batch's jobs carry it as a local property.
 *
 * @param loggedAtMs when the epoch was logged, according to the log; `None` if epochs are logged when they end
 * @param snapshots  partitions whose stores are to make a snapshot, as some of their files are gone
 */
private[sql] final case class RoutingHint(
    runId: String, epoch: Long, now: EntryName, loggedAtMs: Option[Long], snapshots: Set[Int] = Set.empty) {
  def render: String =
    s"$runId:$epoch:${loggedAtMs.getOrElse("")}:${snapshots.toSeq.sorted.mkString(",")}:${now.render}"
}

private[sql] object RoutingHint {
  def parse(text: String): Option[RoutingHint] = text.split(":", 5) match {
    case Array(run, epoch, loggedAt, snapshots, now) => EntryName.parse(now).map(
        RoutingHint(run, epoch.toLong, _, loggedAt.toLongOption, snapshots.split(',').flatMap(_.toIntOption).toSet))
    case _ => None
  }
}

private[sql] object EpochRouting {
  /** Tables kept per run: those in force at this epoch and the last, and some for retried tasks. */
  private val MaxEntries = 16

  /** How many times of epochs are remembered. A snapshot of an older epoch is uploaded only if a later epoch is this run's. */
  private val MaxLoggedAt = 1000

  /** Runs kept per JVM. If an active run is dropped, its routing is read again when it is needed. */
  private val MaxRuns = 32

  private val runs = new java.util.LinkedHashMap[String, EpochRouting](MaxRuns, 0.75f, true) {
    override def removeEldestEntry(e: java.util.Map.Entry[String, EpochRouting]): Boolean =
      size > MaxRuns
  }

  def forRun(runId: String, stateRoot: String, hadoopConf: Configuration): EpochRouting =
    runs.synchronized(runs.computeIfAbsent(runId, make(_, stateRoot, hadoopConf)))

  /** Routing for a store that only reads committed versions. */
  def forReader(stateRoot: String, hadoopConf: Configuration): EpochRouting =
    make("none", stateRoot, hadoopConf)

  private def make(runId: String, stateRoot: String, hadoopConf: Configuration): EpochRouting = {
    val dir = ControlDir.ofStateRoot(stateRoot, hadoopConf)
    new EpochRouting(
      runId, new RoutingLog(dir), CheckpointIds.read(dir, _), () => ShippingOrder.read(dir), () => LoggedEpochs.read(dir),
      () => Layout.read(dir), new Savepoints(dir))
  }
}
