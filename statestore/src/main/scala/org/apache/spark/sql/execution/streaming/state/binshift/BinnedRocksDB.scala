package org.apache.spark.sql.execution.streaming.state.binshift

import org.apache.spark.internal.Logging
import org.apache.spark.sql.execution.streaming.state._

/**
 * A binned database whose content follows the routing table: loading a version at which the table
 * changes adopts the bins that arrive and releases those that leave, before the first row is
 * processed.
 *
 * What it relies on in Spark's `RocksDB`: changelog replay happens inside `load` and
 * `loadFromSnapshot`; `load` of the version that is loaded already keeps the content; `loadEmpty`, as
 * well as a new column family, makes the commit upload a whole snapshot; `rollback` makes the next
 * load start from the checkpoint.
 *
 * @param routing routing of the query's run; `None` for a store that only reads
 */
private[binshift] final class BinnedRocksDB(
    storeId: StateStoreId,
    routing: Option[EpochRouting],
    spark: RocksDBArguments)
  extends BinKeyedRocksDB(storeId, spark) with Logging {

  /** What the last load adopted and released. */
  def lastSwitch: SwitchStats = switchStats

  /** Whether the partition came into being at the loaded version. */
  def isNew: Boolean = isNewPartition

  private var switchStats = SwitchStats.None
  private var isNewPartition = false

  /** The version for which a read-only load applied a switch that waits for its write store. */
  private var awaitingWrite: Option[Long] = None

  override def load(
      version: Long,
      stateStoreCkptId: Option[String],
      readOnly: Boolean,
      loadEmpty: Boolean): RocksDB = routing match {
    case None => loadToRead(version, stateStoreCkptId, readOnly, loadEmpty)
    case Some(r) =>
      val tables = r.at(version)
      val switch = tables.before.map(BinSwitch.between(_, tables.now, partitionId)).filterNot(_.isEmpty)
      owners = tables.now.assignment.toArray
      isNewPartition = switch.exists(_.isNew)
      switch match {
        case Some(_) if !readOnly && awaitingWrite.contains(version) && loadedVersion == version =>
          // The read store of this task is upgraded: the switch is applied, its changes are in the
          // changelog that is open, and loading again would throw them away.
          awaitingWrite = None
        case _ =>
          discardUnfinishedSwitch()
          switch match {
            case None => loadUnchanged(version, stateStoreCkptId, readOnly, loadEmpty)
            case Some(s) => loadAndSwitch(version, stateStoreCkptId, readOnly, loadEmpty, s)
          }
      }
      this
  }

  private def loadToRead(
      version: Long, ckptId: Option[String], readOnly: Boolean, loadEmpty: Boolean): RocksDB = {
    if (!readOnly) {
      throw BinshiftException.configuration(
        s"$storeId was opened for writing by a session in which binshift's extension is not active; " +
          "put the binshift jar into spark.jars before the session is created, for example with " +
          "binshift.configure(builder)")
    }
    inStoredForm(super.load(version, ckptId, readOnly, loadEmpty))
  }

  private def loadUnchanged(
      version: Long, ckptId: Option[String], readOnly: Boolean, loadEmpty: Boolean): Unit = {
    switchStats = SwitchStats.None
    inStoredForm(super.load(version, ckptId, readOnly, loadEmpty))
  }

  /**
   * Loads for writing even if only a read store is asked for, so that what is adopted reaches the
   * changelog: the write store of the same task then continues with it.
   */
  private def loadAndSwitch(
      version: Long, ckptId: Option[String], readOnly: Boolean, loadEmpty: Boolean, switch: BinSwitch)
      : Unit = {
    val started = System.nanoTime()
    if (switch.isNew) {
      // Files of this partition's directory are from before it was retired, or do not exist.
      inStoredForm(super.load(version, None, readOnly = false, loadEmpty = true))
    } else {
      inStoredForm(super.load(version, ckptId, readOnly = false, loadEmpty))
    }
    try {
      release(switch.leaving)
      val (rows, bytes) = adopt(version, switch.arriving)
      switchStats = SwitchStats(switch.binsAdopted, switch.leaving.size, rows, bytes,
        (System.nanoTime() - started) / 1000000)
    } catch {
      case e: Throwable =>
        super.rollback()
        throw BinshiftException.migration(
          s"partition $partitionId of operator ${storeId.operatorId} could not take over its bins at " +
            s"epoch $version (${e.getMessage}); the batch is retried from the last committed state", e)
    }
    if (readOnly) awaitingWrite = Some(version)
    logInfo(s"$storeId switched at epoch $version: $switchStats")
  }

  /** A read store that applied a switch and never became a write store leaves nothing behind. */
  private def discardUnfinishedSwitch(): Unit = if (awaitingWrite.isDefined) {
    awaitingWrite = None
    super.rollback()
  }

  private def release(leaving: Seq[Int]): Unit = inStoredForm {
    ColumnFamily.of(this, spark.useColumnFamilies).foreach { family =>
      ColumnFamily.foreachRow(this, family.name, leaving)(row => remove(row.key, family.name))
    }
  }

  private def adopt(version: Long, arriving: Map[Int, Seq[Int]]): (Long, Long) = inStoredForm {
    var rows = 0L
    var bytes = 0L
    arriving.toSeq.sortBy(_._1).foreach { case (source, bins) =>
      val store = storeId.copy(partitionId = source)
      val id = routing.filter(_ => spark.enableStateStoreCheckpointIds).map(_.checkpointIds(version).of(store))
      val checkpoint = new CheckpointedBins(store, id, conf, spark.hadoopConf, spark.useColumnFamilies)
      checkpoint.foreachRow(version, bins) { (family, key, values) =>
        if (spark.useColumnFamilies) createColFamilyIfAbsent(family.name, family.isInternal)
        putList(key, values, family.name)
        rows += 1
        bytes += key.length + values.iterator.map(_.length).sum
      }
    }
    (rows, bytes)
  }

  override def loadFromSnapshot(
      snapshotVersion: Long,
      endVersion: Long,
      snapshotVersionStateStoreCkptId: Option[String],
      endVersionStateStoreCkptId: Option[String]): RocksDB = inStoredForm(super.loadFromSnapshot(
    snapshotVersion, endVersion, snapshotVersionStateStoreCkptId, endVersionStateStoreCkptId))

  override def release(): Unit = {
    discardUnfinishedSwitch()
    super.release()
  }

  override def rollback(): Unit = {
    awaitingWrite = None
    super.rollback()
  }
}

/** What one load moved: counts, bytes of keys and values, and milliseconds. */
private[binshift] final case class SwitchStats(
    binsAdopted: Int, binsReleased: Int, rowsAdopted: Long, bytesAdopted: Long, adoptMs: Long)

private[binshift] object SwitchStats {
  val None: SwitchStats = SwitchStats(0, 0, 0L, 0L, 0L)
}
