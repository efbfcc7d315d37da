package org.apache.spark.sql.binshift.statistics

import java.util.UUID
import java.util.concurrent.{CompletableFuture, ConcurrentHashMap, Future}

import scala.collection.immutable.SortedMap
import scala.jdk.CollectionConverters._

import org.apache.spark.sql.binshift.internals.{CommittedEpoch, SparkInternals}
import org.apache.spark.sql.binshift.routing.Epoch
import org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution
import org.apache.spark.sql.execution.streaming.state.binshift.{Faults, OrWarn}
import org.apache.spark.sql.execution.streaming.state.binshift.checkpoint.Storage
import org.apache.spark.sql.execution.streaming.state.binshift.routing.{ReportAddress, RoutingTable}
import org.apache.spark.sql.execution.streaming.state.binshift.statistics.StoreReport
import org.apache.spark.util.ThreadUtils

/**
 * The statistics of one run of a query, per operator and bin, as of the last committed epoch.
 *
 * Stores report with the results of their tasks (see [[ReportAddress]]). The reports of an epoch are complete when it is committed.
 * After that they are added up, in the background or when somebody asks. If a store reports twice, the later report counts; both
 * attempts did the same. The contents of the bins are saved in the checkpoint from time to time, and at the end.
 *
 * Thread-safe.
 */
private[binshift] final class QueryStatistics(query: MicroBatchExecution) extends OrWarn {
  import QueryStatistics._

  private val dir = SparkInternals.controlDir(query)
  /** By operator; contains only binned ones. */
  private var operators = SortedMap.empty[Long, OperatorStatistics]
  private var table: Option[RoutingTable] = None
  /** The last epoch that was taken in, in this run or an earlier one. */
  private var epoch = -1L
  /** Epochs that have not been taken in, ascending. */
  private var awaited = Vector.empty[AwaitedEpoch]
  /** The reports of the epoch that was announced last. */
  private var latest = Option.empty[(Long, EpochReports)]
  /** The number of hot keys that clients wait for, and the keys that they got last. */
  private var keysWanted = 0
  private var hotKeys: Option[HotKeys] = None
  private var isClosed = false
  private var savedAtMs = System.currentTimeMillis()

  private[binshift] def isActive: Boolean = query.isActive

  /** Begins an epoch, and returns what its jobs should carry. Called on the stream's thread, before any task runs. */
  def announce(e: Epoch): String = {
    val saved = if (synchronized(operators.isEmpty)) savedBefore(e) else None
    announce(e, saved)
  }

  private def announce(e: Epoch, saved: Option[SavedStatistics]): String = synchronized {
    if (!awaited.exists(_.epoch == e.hint.epoch)) {
      // The epoch before is committed by now. Adding up its reports may take long if there are many bins, so the stream
      // doesn't wait for it.
      if (awaited.nonEmpty) Background.execute(() => takeUpTo(e.hint.epoch - 1))
      if (operators.isEmpty) begin(e, saved)
      val before = latest.filter(_._1 == e.hint.epoch - 1).fold(Map.empty[(Long, String), Long])(_._2.known)
      val reports = new EpochReports(query, new RowTotals(e.hint.epoch, e.table.partitions, before))
      latest = Some(e.hint.epoch -> reports)
      query.sparkSession.sparkContext.register(reports)
      val address = ReportAddress(e.hint.runId, e.hint.epoch, keysWanted, reports)
      keysWanted = 0
      awaited :+= AwaitedEpoch(e.hint.epoch, e.table, address, address.render)
    }
    awaited.last.rendered
  }

  /** The statistics as of the last committed epoch; `None` before the first one. */
  def snapshot(): Option[StatisticsSnapshot] = {
    takeUpToCommitted()
    synchronized(table.map(t => StatisticsSnapshot(epoch, t, operators.values.map(_.snapshot(t)).toSeq)))
  }

  /** The partitions that waited for copies in the last committed epoch, with their executors. */
  def awaiting(): Map[Int, String] = {
    takeUpToCommitted()
    synchronized(operators.values.flatMap(_.awaiting).toMap)
  }

  /** Has the stores count the keys of the next epoch that will be planned. Returns the epoch planned last. */
  def sampleKeys(n: Int): Long = synchronized {
    keysWanted = math.max(keysWanted, n)
    awaited.lastOption.map(_.epoch).getOrElse(epoch)
  }

  /** The keys that were sampled at an epoch after `after`, once it is committed. */
  def sampledKeys(after: Long): Option[HotKeys] = {
    takeUpToCommitted()
    synchronized(hotKeys.filter(_.epoch > after))
  }

  /** Called when the query has ended; waits until all is saved. */
  def close(): Unit = end().foreach(_.get())

  /** Does the same in the background, for a query whose end nobody has reported. */
  def closeLater(): Unit = Saves.execute(() => orWarn(s"query ${query.id}: statistics were not saved")(end()))

  /** Stops counting. The first call has the statistics saved. */
  private def end(): Option[Future[_]] = {
    takeUpToCommitted()
    val isFirst = synchronized {
      awaited = Vector.empty
      val first = !isClosed
      isClosed = true
      first
    }
    if (isFirst) saveLater() else None
  }

  private def begin(e: Epoch, saved: Option[SavedStatistics]): Unit = {
    operators = SortedMap.from(e.layout.operators.collect {
      case (id, o) if o.storage == Storage.Binned =>
        id -> new OperatorStatistics(id, o.name, e.layout.bins)
    })
    orWarn(s"query ${query.id}: $NotUsable")(
      saved.foreach(_.stores.foreach(s => operators.get(s.operator).foreach(_.restore(s)))))
  }

  /**
   * Reads the statistics that an earlier run has saved. Makes a request to the checkpoint, so it doesn't take the lock, for which
   * a thread of all queries may be waiting.
   */
  private def savedBefore(e: Epoch): Option[SavedStatistics] =
    orWarn(s"query ${query.id}: $NotUsable", Option.empty[SavedStatistics])(
      if (e.hint.epoch > 0 && e.layout.operators.exists(_._2.storage == Storage.Binned))
        SavedStatistics.read(dir).filter(_.bins == e.layout.bins)
      else None)

  /** May ask the checkpoint how far the query has got, without the lock for the same reason. */
  private def takeUpToCommitted(): Unit = takeUpTo(CommittedEpoch.of(query))

  private def takeUpTo(committed: Long): Unit = synchronized {
    val (done, open) = awaited.span(_.epoch <= committed)
    awaited = open
    done.foreach(take)
  }

  private def take(a: AwaitedEpoch): Unit = {
    val latest = a.address.accumulator.value.asScala.map(StoreReport.parse).filter(_.epoch == a.epoch)
      .map(r => (r.operator, r.store, r.partition) -> r).toMap.values
    operators.foreach { case (id, o) => o.commit(latest.filter(_.operator == id), a.table) }
    if (a.address.keysWanted > 0) hotKeys = Some(HotKeys.of(a.epoch, a.table, operators.values, latest))
    table = Some(a.table)
    epoch = a.epoch
    if (!isSaving(query.id) && System.currentTimeMillis() - savedAtMs > SaveIntervalMs) saveLater()
  }

  private def saveLater(): Option[Future[_]] = synchronized {
    savedAtMs = System.currentTimeMillis()
    table.map { t =>
      val saved = SavedStatistics(epoch, t.bins, operators.values.flatMap(_.saved).toSeq)
      val save: Runnable = () =>
        orWarn(s"query ${query.id}: statistics were not saved") {
          Faults.at("statistics.save")
          saved.write(dir)
        }
      saveAfterOthers(query.id, save)
    }
  }
}

/** @param rendered the property that the jobs carry */
private final case class AwaitedEpoch(
    epoch: Long, table: RoutingTable, address: ReportAddress, rendered: String)

/** The statistics of the runs of this driver. Those of ended runs are removed when those of another run are created. */
private[binshift] object QueryStatistics {
  private val SaveIntervalMs = 60000L
  private val NotUsable = "the saved statistics cannot be used"
  private lazy val Background = ThreadUtils.newDaemonSingleThreadExecutor("binshift-statistics")
  /** Several threads, so that a file system that doesn't answer only delays the query with its checkpoint there. */
  private lazy val Saves = ThreadUtils.newDaemonCachedThreadPool("binshift-statistics-save", 16)
  private val all = new ConcurrentHashMap[UUID, QueryStatistics]()

  /** The last save of each query, across its runs: a newer save waits for the older one. */
  private val saves = new ConcurrentHashMap[UUID, CompletableFuture[Void]]()

  private def isSaving(query: UUID): Boolean = saves.containsKey(query)

  private def saveAfterOthers(query: UUID, save: Runnable): Future[_] = {
    val last = saves.compute(query,
      (_, before) => {
        val over = Option(before).getOrElse(CompletableFuture.completedFuture[Void](null))
        over.handle[Unit]((_, _) => ()).thenRunAsync(save, Saves)
      })
    last.whenComplete((_, _) => saves.remove(query, last))
    last
  }

  def of(query: MicroBatchExecution): QueryStatistics =
    Option(all.get(query.runId)).getOrElse {
      val ended = all.values.asScala.filterNot(_.isActive).toSeq
      all.values.removeAll(ended.asJava)
      ended.foreach(_.closeLater())
      // Creating one doesn't read the checkpoint.
      all.computeIfAbsent(query.runId, _ => new QueryStatistics(query))
    }

  def close(runId: UUID): Unit = Option(all.get(runId)).foreach(_.close())
}
