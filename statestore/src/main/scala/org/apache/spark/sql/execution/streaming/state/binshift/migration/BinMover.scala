package org.apache.spark.sql.execution.streaming.state.binshift.migration

import org.apache.spark.internal.Logging
import org.apache.spark.sql.execution.streaming.state.binshift.{BinshiftException, Faults, Trace}
import org.apache.spark.sql.execution.streaming.state.binshift.recovery.{BinRecovery, ForeignRows}
import org.apache.spark.sql.execution.streaming.state.binshift.routing.{BinSwitch, EpochRouting}
import org.apache.spark.sql.execution.streaming.state.binshift.shipping._
import org.apache.spark.sql.execution.streaming.state.binshift.storage._
import org.apache.spark.sql.execution.streaming.state.StateStoreId

/**
 * Makes the switch of a loaded database: drops the bins that leave, and brings in those that arrive. Keys are in their stored
 * form, and no changelog is open.
 *
 * Arriving bins come from the first of these places that has them: the copy that was made ahead; a shipment from their old
 * owner's executor; their old owner's checkpoint.
 *
 * @param adopted   called with bins that arrived on demand, after their switch
 * @param beginWith replaces the loaded version, which is empty, with files
 * @param beginAnew loads that version again
 */
private[binshift] final class BinMover(
    db: BinKeyedRocksDB,
    store: StateStoreId,
    routing: EpochRouting,
    shipping: PartitionShipping,
    conf: BackgroundConf,
    arguments: RocksDBArguments,
    adopted: SwitchStats => Unit,
    beginWith: WholeFiles => Unit,
    beginAnew: () => Unit) extends Logging {

  /** Called by the task that runs the epoch `version`. */
  def apply(version: Long, switch: BinSwitch): SwitchStats = {
    switchedAt = version
    pendingBins.requireAll()
    val started = System.nanoTime()
    shipping.onSwitch()
    release(switch.leaving, !switch.staying(_))
    val begun = split.begin(version, switch)
    // The largest one first, because an empty store may begin with its files.
    val others = switch.arriving.toSeq.filterNot { case (source, _) => begun.exists(_._1 == source) }
      .sortBy { case (source, bins) => (-bins.size, source) }
    val arriving = others.flatMap(_._2)
    sweepFor(arriving)
    val adopted = begun.map(_._2).toSeq ++ others.zipWithIndex.map { case ((source, bins), i) =>
      // Beginning anew would forget those that have arrived before, or are on their way.
      val isFirst = i == 0 && begun.isEmpty && split.mayBegin(version, switch)
      arrive(version, source, bins,
        Option.when(isFirst)((files, stay) =>
          split.isBegunWith(version, source, files, stay) && {
            sweepFor(arriving.diff(stay))
            true
          }))
    }
    val owned = routing.at(version).now.binsOf(store.partitionId)
    require(!owned.exists(released.contains),
      s"$store owns bins whose rows are being deleted: ${owned.filter(released.contains)}")
    if (Trace.isOn) Trace("switched", store, "version" -> version, "left" -> Trace.ranges(switch.leaving))
    Faults.at("switch.done", store.partitionId)
    adopted.foldLeft(SwitchStats(binsReleased = switch.leaving.size))(_ + _)
      .copy(adoptMs = msSince(started))
  }

  /** Called when the store is closed. */
  def close(): Unit = {
    released.close()
    known.clear()
  }

  /** Rows of released bins that are still in the database. */
  val released = new ReleasedRows(db, store)
  private val split = new PartitionSplit(db, store, routing, shipping, release, beginWith, beginAnew)
  private lazy val known = new KnownRows(db, store.partitionId)
  private var isUnusable = false
  private var switchedAt = -1L

  /** The bins that come on demand. */
  val pendingBins: PendingBins = new PendingBins(conf, known,
    new BinIntake {
      override def adopt(bins: Seq[Int], recopied: Int, taken: TakenCopy): Unit = counted {
        val bytes = bytesOf(taken)
        if (Trace.isOn) Trace("arrived", store, "version" -> switchedAt, "way" -> "bins on demand", "again" -> (recopied > 0),
          "bins" -> Trace.ranges(bins), "base" -> taken.version)
        if (known.count(bins) == 0) takeIn(taken)
        else {
          // In a store with families, lookups by a prefix read all files, so ingested files don't count as disjoint.
          val disjoint = if (db.hasFamilies) 0 else taken.base.size
          CompactionPace.takingIn(db, RocksDBFields.native(db), disjoint)(orElseUnusable(known.winOver(bins)(takeIn(taken))))
        }
        SwitchStats(binsShipped = bins.size, binsRecopied = recopied, rowsAdopted = taken.rows.total.all, bytesAdopted = bytes)
      }

      override def readRest(version: Long, source: Int, bins: Seq[Int]): Unit = counted {
        orElseUnusable(known.winOver(bins)(RocksDBFields.withoutChangelog(db)(readCheckpoint(version, source, bins))))
      }

      override def fetched(rows: Seq[FetchedRows]): Unit = {
        if (Trace.isOn) Trace("rows on demand", store, "version" -> switchedAt, "keys" -> rows.size)
        orElseUnusable(known.add(rows))
        adopted(SwitchStats(rowsFetched = rows.iterator.map(of => math.max(1, of.rows.size)).sum))
      }

      override def isUsable: Boolean = !isUnusable

      private def counted(take: => SwitchStats): Unit = {
        val started = System.nanoTime()
        val stats = db.inStoredForm(take)
        adopted(stats.copy(adoptMs = msSince(started)))
      }
    })

  /** Runs `body`. If that throws, the database may have half of the changes, so the next load starts from the checkpoint. */
  private def orElseUnusable[T](body: => T): T =
    try body
    catch {
      case e: BinsNotBrought => throw e
      case e: Throwable =>
        isUnusable = true
        db.rollback()
        throw BinshiftException("SWITCH_FAILED", "partition" -> store.partitionId, "epoch" -> switchedAt).migration(
          s"partition ${store.partitionId} of operator ${store.operatorId} could not take in bins or rows that came on demand " +
            s"(${e.getMessage}); the batch is retried from the last committed state", e)
    }

  /** Called when everything was loaded from the checkpoint. */
  def forget(): Unit = {
    CompactionPace.forget(db)
    pendingBins.clear()
    released.forget()
    isUnusable = false
  }

  private def msSince(ns: Long): Long = (System.nanoTime() - ns) / 1000000

  private val ranges = new BinRows(db, arguments.useColumnFamilies)

  /**
   * Arriving bins must not find rows here: those of bins that were released and come back, and those that came with whole files of
   * another owner.
   */
  private def sweepFor(arriving: Seq[Int]): Unit = if (arriving.exists(released.contains)) released.sweep()

  private def arrive(version: Long, source: Int, bins: Seq[Int], begins: Option[BinRecovery.Begin]): SwitchStats =
    shipping.onDemand(version, source, bins) match {
      case Some(staged) =>
        if (Trace.isOn) Trace("awaits", store, "version" -> version, "from" -> source, "bins" -> Trace.ranges(bins))
        pendingBins.expect(version, source, bins, staged)
        SwitchStats.None
      case None =>
        val copied = for {
          (copy, step) <- shipping.find(version, source, bins)
          taken <- copy.take(step, version)
          stats <- unlessItFails(bins)(ingest(version, copy, step, taken, bins))
        } yield stats
        copied.getOrElse(readCheckpoint(version, source, bins, begins))
    }

  private def unlessItFails(bins: Seq[Int])(ingest: => SwitchStats): Option[SwitchStats] =
    ranges.bringOrElse(bins)(Option(ingest)) { e =>
      logWarning(s"$store: copies of bins ${bins.mkString(", ")} could not be taken in; they are read from " +
          "the checkpoint", e)
      None
    }

  private def release(bins: Seq[Int], isEmpty: Int => Boolean): Unit = if (bins.nonEmpty) {
    ranges.dropRanges(bins, isEmpty)
    released.add(bins)
  }

  /** Asked before the files are ingested, because that moves them. */
  private def bytesOf(taken: TakenCopy): Long = (taken.base ++ taken.changes).map(_.length).sum

  private def ingest(version: Long, copy: StagedCopy, step: Int, taken: TakenCopy, bins: Seq[Int]): SwitchStats = {
    val bytes = bytesOf(taken)
    takeIn(taken)
    val foreign = new ForeignRows(db)
    (taken.version + 1 to version).foreach { v => copy.foreachChange(v, step)(foreign(_)) }
    Faults.at("switch.changes", store.partitionId)
    val isPrepared = copy.base < version
    if (Trace.isOn) Trace("arrived", store, "version" -> version, "from" -> copy.sourcePartition, "bins" -> Trace.ranges(bins),
      "way" -> (if (isPrepared) "copied ahead" else "sent at the switch"), "again" -> !copy.wasShipped,
      "base" -> copy.base, "attempt" -> copy.attemptRead, "up_to" -> taken.version)
    SwitchStats(
      binsPrepared = if (isPrepared) bins.size else 0,
      binsShipped = if (isPrepared) 0 else bins.size,
      binsRecopied = if (copy.wasShipped) 0 else bins.size,
      rowsAdopted = taken.rows.total.all, bytesAdopted = bytes)
  }

  private def takeIn(taken: TakenCopy): Unit = {
    Faults.at("switch.ingest", store.partitionId)
    ranges.takeIn(taken.base +: taken.changes.map(Seq(_)), taken.rows)
  }

  private def readCheckpoint(
      version: Long, source: Int, bins: Seq[Int], begins: Option[BinRecovery.Begin] = None): SwitchStats = {
    val stats = BinRecovery.adopt(db, store.copy(partitionId = source), routing, arguments, bins, version, begins = begins)
    if (Trace.isOn)
      Trace("arrived", store, "version" -> version, "from" -> source, "way" -> "checkpoint", "bins" -> Trace.ranges(bins))
    stats
  }
}
