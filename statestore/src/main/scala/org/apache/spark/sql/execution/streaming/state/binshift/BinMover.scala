package org.apache.spark.sql.execution.streaming.state.binshift

import scala.jdk.CollectionConverters._

import org.rocksdb.{IngestExternalFileOptions, WriteOptions}

import org.apache.spark.sql.execution.streaming.state.{RecordType, StateStoreId}

/**
 * Brings a loaded database from its content before a switch to that after it. Keys are in their stored
 * form, and no changelog is open.
 *
 * Arriving bins come from the first of these that there is: the copy that was made before; the
 * shipment of their old owner's executor; their old owner's checkpoint.
 */
private[binshift] final class BinMover(
    db: BinnedRocksDB,
    store: StateStoreId,
    routing: EpochRouting,
    shipping: PartitionShipping,
    conf: BackgroundConf,
    spark: RocksDBArguments) {

  /** Called by the task that runs the epoch `version`. */
  def apply(version: Long, switch: BinSwitch): SwitchStats = {
    val started = System.nanoTime()
    residents.requireAll()
    settle()
    shipping.departingRows(version, switch.leaving) match {
      case Some(rows) => drop(switch, rows)
      case None => shipping.leavingOnDemand(version, switch.leaving) match {
        case Some(exporter) =>
          drop(switch, RowCounts.Zero)
          owed = Some(OwedRows(version, switch.leaving, exporter))
        case None => remove(switch.leaving)
      }
    }
    val adopted = switch.arriving.toSeq.sortBy(_._1).map { case (source, bins) =>
      arrive(version, source, bins)
    }
    Faults.at("switch.done", store.partitionId)
    adopted.foldLeft(SwitchStats(binsReleased = switch.leaving.size))(_ + _)
      .copy(adoptMs = (System.nanoTime() - started) / 1000000)
  }

  /** The bins that come on demand. */
  val residents = new Residents(conf, (bins, recopied, taken) => db.inStoredForm {
    takeIn(taken)
    db.count(SwitchStats(
      binsShipped = bins, binsRecopied = recopied, rowsAdopted = taken.rows.rows + taken.rows.internal))
  }, (version, source, bins) => db.inStoredForm(db.count(readCheckpoint(version, source, bins))))

  /** Whether rows were dropped that are still counted, until all have been sent. */
  def isOwing: Boolean = owed.isDefined

  /** Stops counting the rows that were dropped, if all have been sent. */
  def settleIfSent(): Unit = if (owed.exists(_.exporter.isOver)) settle()

  /** Stops counting the rows that were dropped; counts them in the checkpoint if not all have been sent. */
  def settle(): Unit = owed.foreach { o =>
    val rows = o.exporter.rowsByStep.map(_.values.reduce(_ + _)).getOrElse(countCheckpoint(o.version, o.bins))
    RocksDBFields.setRows(db, RocksDBFields.rows(db) - rows)
    owed = None
  }

  /** Everything was loaded from the checkpoint. */
  def forget(): Unit = {
    residents.clear()
    owed = None
  }

  private var owed: Option[OwedRows] = None

  private def arrive(version: Long, source: Int, bins: Seq[Int]): SwitchStats =
    shipping.onDemand(version, source, bins) match {
      case Some(staged) =>
        residents.expect(version, source, bins, staged)
        SwitchStats.None
      case None =>
        val copied = for ((copy, step) <- shipping.find(version, source, bins); taken <- copy.take(step))
          yield ingest(version, copy, step, taken, bins.size)
        copied.getOrElse(readCheckpoint(version, source, bins))
    }

  /** Called while Spark replays changelogs: everything is in the checkpoint. */
  def replay(version: Long, switch: BinSwitch): Unit = {
    remove(switch.leaving)
    switch.arriving.toSeq.sortBy(_._1).foreach { case (source, bins) => readCheckpoint(version, source, bins) }
  }

  private def remove(leaving: Seq[Int]): Unit = if (leaving.nonEmpty) {
    ColumnFamily.of(db, spark.useColumnFamilies).foreach { family =>
      ColumnFamily.foreachRow(db, family.name, leaving)(row => db.remove(row.key, family.name))
    }
  }

  /** Drops ranges of keys, which costs nothing per row; `rows` are in them. */
  private def drop(switch: BinSwitch, rows: RowCounts): Unit = {
    val leaving = switch.leaving
    val native = RocksDBFields.native(db)
    val before = RocksDBFields.rows(db)
    val options = new WriteOptions().setDisableWAL(true)
    try ColumnFamily.numbered(db, spark.useColumnFamilies).foreach { family =>
      if (ColumnFamily.isReadInOrder(family.family.name)) {
        ColumnFamily.foreachRow(db, family.family.name, leaving)(row => db.remove(row.key, family.family.name))
      } else {
        family.ranges(leaving, !switch.staying(_)).foreach { case (from, to) => native.deleteRange(options, from, to) }
      }
    } finally options.close()
    RocksDBFields.setRows(db, before - rows)
  }

  private def ingest(version: Long, copy: StagedCopy, step: Int, taken: TakenCopy, bins: Int): SwitchStats = {
    val bytes = (taken.base ++ taken.changes).map(_.length).sum
    takeIn(taken)
    (taken.version + 1 to version).foreach { v => copy.foreachChange(v, step)(applyChange) }
    val isPrepared = copy.base < version
    SwitchStats(
      binsPrepared = if (isPrepared) bins else 0,
      binsShipped = if (isPrepared) 0 else bins,
      binsRecopied = if (copy.wasShipped) 0 else bins,
      rowsAdopted = taken.rows.rows + taken.rows.internal, bytesAdopted = bytes)
  }

  private def takeIn(taken: TakenCopy): Unit = {
    val native = RocksDBFields.native(db)
    val before = RocksDBFields.rows(db)
    Faults.at("switch.ingest", store.partitionId)
    val options = new IngestExternalFileOptions().setMoveFiles(true)
    try Seq(taken.base, taken.changes.toSeq).filter(_.nonEmpty).foreach { files =>
      native.ingestExternalFile(files.map(_.getPath).asJava, options)
    } finally options.close()
    RocksDBFields.setRows(db, before + taken.rows)
  }

  /** Values are as they are stored, with their row checksums. */
  private def applyChange(
      kind: RecordType.Value, family: NumberedFamily, key: Array[Byte], value: Array[Byte]): Unit = {
    val name = family.family.name
    val isWithChecksum = spark.conf.rowChecksumEnabled
    kind match {
      case RecordType.PUT_RECORD => db.put(key, value, name, false, false, isWithChecksum)
      case RecordType.MERGE_RECORD => db.merge(key, value, name, false, false, isWithChecksum)
      case RecordType.DELETE_RECORD => db.remove(key, name)
      case other => throw new IllegalStateException(s"a changelog record of kind $other cannot be moved")
    }
  }

  private def countCheckpoint(version: Long, bins: Seq[Int]): RowCounts = {
    var rows = RowCounts.Zero
    new CheckpointedBins(store, routing, spark).foreachRow(version, bins) { (family, _, _) =>
      rows += (if (family.isInternal) RowCounts(0, 1) else RowCounts(1, 0))
    }
    rows
  }

  private def readCheckpoint(version: Long, source: Int, bins: Seq[Int]): SwitchStats = {
    var rows = 0L
    var bytes = 0L
    new CheckpointedBins(store.copy(partitionId = source), routing, spark).foreachRow(version, bins) {
      (family, key, values) =>
        if (spark.useColumnFamilies) db.createColFamilyIfAbsent(family.name, family.isInternal)
        db.putList(key, values, family.name)
        rows += 1
        bytes += key.length + values.iterator.map(_.length).sum
    }
    SwitchStats(binsFromCheckpoint = bins.size, rowsAdopted = rows, bytesAdopted = bytes)
  }
}

/** Rows of `bins` that left on demand at the switch of `version`, and that `exporter` counts. */
private final case class OwedRows(version: Long, bins: Seq[Int], exporter: Exporter)
