package org.apache.spark.sql.execution.streaming.state.binshift.shipping

import java.io.File
import java.util.UUID

import org.apache.spark.sql.execution.streaming.state.binshift.Faults
import org.apache.spark.sql.execution.streaming.state.binshift.checkpoint.CommittedFile
import org.apache.spark.sql.execution.streaming.state.binshift.keys.ColumnFamily
import org.apache.spark.sql.execution.streaming.state.binshift.recovery.CommittedChanges
import org.apache.spark.sql.execution.streaming.state.binshift.routing.{EpochRouting, ShippedBin, ShippingHint, ShippingOrder}
import org.apache.spark.sql.execution.streaming.state.binshift.storage.{RocksDBArguments, WholeFiles}
import org.apache.spark.sql.execution.streaming.state.StateStoreId
import org.apache.spark.util.Utils

/** One store's part in one order. */
private[shipping] final class OrderPart(
    val order: ShippingOrder,
    store: StateStoreId,
    db: ShippingStore,
    routing: EpochRouting,
    arguments: RocksDBArguments,
    conf: BackgroundConf) {

  /** The part that travels as rows. */
  private val rows = order.byRows
  private val leaving: Map[Int, Seq[ShippedBin]] = rows.leaving(store.partitionId)
  private val arriving: Map[Int, Seq[ShippedBin]] = rows.arriving(store.partitionId)
  private val splits = order.splitsOf(store.partitionId)
  private var next = order.firstStep
  private var isDue = false
  private var exporter: Option[Exporter] = None
  private var splitting: Option[SplitSource] = None
  private var staged: Option[StagedBins] = None

  /** True if a prepared step takes effect at the next epoch, and bins arrive here or leave with it. */
  def isDueHere: Boolean = isDue && order.isAhead && (arriving.values ++ leaving.values).exists(_.exists(_.step == next))

  def awaitLinks(): Unit = {
    exporter.foreach(_.awaitLinks())
    splitting.foreach(_.awaitLinks())
  }

  def onLoad(epoch: Long, hint: ShippingHint): Unit = {
    next = hint.next
    isDue = hint.isDue
    if (hasFamilies) stageFrom(epoch)
    staged.foreach(_.begin(epoch, hint.next, Option.when(hint.isDue)(hint.next)))
  }

  def onCommit(version: Long, checkpointId: Option[String]): Unit = {
    if (version == order.base && (leaving.nonEmpty || splits.nonEmpty)) {
      Faults.at("export.begin", store.partitionId)
      // Read at once, because another attempt of the task may replace the file.
      val attempt = CommittedFile.attempt(store, version, checkpointId, arguments.hadoopConf)
      db.requireAllBins()
      exporter.foreach(_.cancel())
      splitting.foreach(_.close())
      splitting = Option.when(splits.nonEmpty)(new SplitSource(store, order, attempt, db, arguments.useColumnFamilies))
      exporter =
        Option.when(leaving.nonEmpty)(new Exporter(store, rows, attempt, conf, db, arguments.useColumnFamilies, routing.hasBegun))
    }
    stageFrom(version)
  }

  def awaited: Int = if (order.isOnDemand) 0 else nextFrom(source => staged.forall(_.isAwaited(source)))

  def givenUp: Int = if (order.isOnDemand) 0 else nextFrom(source => staged.exists(_.isGivenUp(source)))

  /** The number of bins in the awaited step that come from sources for which `holds` is true. */
  private def nextFrom(holds: Int => Boolean): Int = arriving.collect {
    case (source, bins) if holds(source) => bins.count(_.step == next)
  }.sum

  def bytesCopied: Long = staged.map(_.bytesCopied).getOrElse(0L)

  def find(source: Int, bins: Seq[Int]): Option[(StagedCopy, Int)] = for {
    step <- stepOf(arriving.getOrElse(source, Nil), bins)
    copy <- staged.flatMap(_.copyFrom(source))
  } yield (copy, step)

  def onDemand(source: Int, bins: Seq[Int]): Option[StagedBins] = staged.filter { _ =>
    order.isOnDemand && arriving.getOrElse(source, Nil).map(_.bin).sorted == bins.sorted
  }

  /** The files with which this store begins at `version`, with `bins` of `source`, if they are on this executor. */
  def split(version: Long, source: Int, bins: Seq[Int]): Option[WholeFiles] = {
    def committed = CommittedFile.attempt(
      peer(source), version, CommittedChanges.idOf(peer(source), version, routing, arguments), arguments.hadoopConf)
    if (isSplit(source, bins)) SplitSource.offer(order, peer(source), store.partitionId, conf.timeoutMs)(committed)
    else None
  }

  /** True if this store, which is empty, begins with the files of `source`, with `bins` as its own. */
  def isSplit(source: Int, bins: Seq[Int]): Boolean =
    order.splitTo(store.partitionId).exists { case (from, all) => from == source && all.sorted == bins.sorted }

  private def peer(partition: Int): StateStoreId = store.copy(partitionId = partition)

  /** True if some family is read in order. Operators with such families scan one in each epoch, so rows by key don't help them. */
  private def isReadInOrder: Boolean = ColumnFamily.of(db, arguments.useColumnFamilies).exists(_.isReadInOrder)

  /** Closes everything, even if closing some of it fails. */
  def close(): Unit = {
    exporter.foreach(e => Utils.tryLogNonFatalError(e.cancel()))
    splitting.foreach(s => Utils.tryLogNonFatalError(s.close()))
    staged.foreach(s => Utils.tryLogNonFatalError(s.close()))
  }

  /** True if the store's families are known, which may be before the operator has asked for them. */
  private def hasFamilies: Boolean =
    !arguments.useColumnFamilies || ColumnFamily.of(db, useColumnFamilies = true).exists(_.name != ColumnFamily.Default.name)

  /** The step with which exactly `bins` move. */
  private def stepOf(shipped: Seq[ShippedBin], bins: Seq[Int]): Option[Int] =
    shipped.groupMap(_.step)(_.bin).collectFirst { case (step, all) if all.sorted == bins.sorted => step }

  /**
   * Begins to stage copies, at the base version or later. Copies that aren't made ahead begin at the base only, because afterwards the
   * switch is over. A store that is loaded for the first time has no column families before its first commit.
   */
  private def stageFrom(version: Long): Unit =
    if (staged.isEmpty && arriving.nonEmpty && version >= order.base && order.serves(version)) {
      val dir = new File(db.localRootDir.getParentFile, s"binshift-staged-${UUID.randomUUID()}")
      val families = ColumnFamily.numbered(db, arguments.useColumnFamilies).map(f => f.family.name -> f).toMap
      val copies = arriving.map { case (source, bins) =>
        val place = new File(dir, source.toString)
        Utils.createDirectory(place)
        new StagedCopy(
          peer(source), store.partitionId, rows, bins, families, place, routing, arguments, conf)
      }.toSeq
      val clients =
        if (!order.isOnDemand || isReadInOrder) Map.empty[Int, RowClient]
        else arriving.keys.map { source =>
          source -> new RowClient(
            order, peer(source), store.partitionId, families.view.mapValues(_.number).toMap, routing,
            arguments, conf)
        }.toMap
      staged = Some(new StagedBins(dir, conf, rows, copies, clients, routing))
    }
}
