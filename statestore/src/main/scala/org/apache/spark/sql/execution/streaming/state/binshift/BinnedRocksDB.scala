package org.apache.spark.sql.execution.streaming.state.binshift

import java.io.File

import org.apache.hadoop.conf.Configuration

import org.apache.spark.internal.Logging
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.util.NextIterator

/**
 * Spark's RocksDB whose keys carry their bin, and whose content follows the routing table: loading a
 * version at which the table changes adopts the bins that arrive and releases those that leave,
 * before the first row is processed.
 *
 * What it relies on in Spark's `RocksDB`: changelog replay goes through the public `put` and `remove`
 * inside `load` and `loadFromSnapshot`; `load` of the version that is loaded already keeps the
 * content; `loadEmpty` makes the commit upload a whole snapshot; `rollback` makes the next load start
 * from the checkpoint; `iterator` hands out fresh key arrays.
 *
 * Used by one task at a time, which the provider's state machine ensures; maintenance threads only
 * call methods that are not overridden here.
 *
 * @param storeId store whose content this is
 * @param routing routing of the query's run; `None` for a store that only reads
 */
private[binshift] final class BinnedRocksDB(
    storeId: StateStoreId,
    routing: Option[EpochRouting],
    dfsRootDir: String,
    conf: RocksDBConf,
    localRootDir: File,
    hadoopConf: Configuration,
    loggingId: String,
    useColumnFamilies: Boolean,
    enableStateStoreCheckpointIds: Boolean,
    partitionId: Int,
    eventForwarder: Option[RocksDBEventForwarder],
    uniqueId: Option[String])
  extends RocksDB(dfsRootDir, conf, localRootDir, hadoopConf, loggingId, useColumnFamilies,
    enableStateStoreCheckpointIds, partitionId, eventForwarder, uniqueId) with Logging {

  /**
   * Bin of the key that the next operation concerns. Spark's signatures have no room for it and the
   * encoded key no longer tells it; [[BinnedStateStore]] sets it before each call.
   */
  var bin: Int = BinnedRocksDB.NoBin

  /** What the last load adopted and released. */
  def lastSwitch: SwitchStats = switchStats

  /** Bins that this partition owns at the loaded version. */
  def binsOwned: Int = owners.count(_ == partitionId)

  /** Whether keys are in their stored form: while Spark replays, and while bins are moved. */
  private var raw = false

  /** Owner of each bin at the loaded version; empty for a store that only reads. On the write path. */
  private var owners: Array[Int] = Array.emptyIntArray

  private var switchStats = SwitchStats.None

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
    replaying(super.load(version, ckptId, readOnly, loadEmpty))
  }

  private def loadUnchanged(
      version: Long, ckptId: Option[String], readOnly: Boolean, loadEmpty: Boolean): Unit = {
    switchStats = SwitchStats.None
    replaying(super.load(version, ckptId, readOnly, loadEmpty))
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
      replaying(super.load(version, None, readOnly = false, loadEmpty = true))
    } else {
      replaying(super.load(version, ckptId, readOnly = false, loadEmpty))
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
    CheckpointedBins.ranges(leaving).foreach { case (first, last) =>
      val rows = super.rangeScan(BinKeyCodec.lowerBound(first), BinKeyCodec.lowerBound(last + 1))
      try rows.foreach(row => super.remove(row.key)) finally rows.closeIfNeeded()
    }
  }

  private def adopt(version: Long, arriving: Map[Int, Seq[Int]]): (Long, Long) = inStoredForm {
    var rows = 0L
    var bytes = 0L
    arriving.toSeq.sortBy(_._1).foreach { case (source, bins) =>
      CheckpointedBins.foreachRow(
        storeId.copy(partitionId = source), version, bins, conf, hadoopConf) { (key, value) =>
        super.put(key, value)
        rows += 1
        bytes += key.length + value.length
      }
    }
    (rows, bytes)
  }

  override def loadFromSnapshot(
      snapshotVersion: Long,
      endVersion: Long,
      snapshotVersionStateStoreCkptId: Option[String],
      endVersionStateStoreCkptId: Option[String]): RocksDB = replaying(super.loadFromSnapshot(
    snapshotVersion, endVersion, snapshotVersionStateStoreCkptId, endVersionStateStoreCkptId))

  override def release(): Unit = {
    discardUnfinishedSwitch()
    super.release()
  }

  override def rollback(): Unit = {
    awaitingWrite = None
    super.rollback()
  }

  override def get(key: Array[Byte], cfName: String): Array[Byte] = super.get(stored(key), cfName)

  override def keyExists(key: Array[Byte], cfName: String): Boolean =
    super.keyExists(stored(key), cfName)

  override def put(
      key: Array[Byte], value: Array[Byte], cfName: String, includesPrefix: Boolean,
      deriveCfName: Boolean, includesChecksum: Boolean): Unit =
    super.put(storedAsOwner(key), value, cfName, includesPrefix, deriveCfName, includesChecksum)

  override def remove(
      key: Array[Byte], cfName: String, includesPrefix: Boolean, deriveCfName: Boolean,
      includesChecksum: Boolean): Unit =
    super.remove(storedAsOwner(key), cfName, includesPrefix, deriveCfName, includesChecksum)

  override def iterator(): NextIterator[ByteArrayPair] =
    if (raw) super.iterator() else new StrippedIterator(super.iterator())

  override def multiGet(keys: Array[Array[Byte]], cfName: String): Iterator[Array[Byte]] =
    unsupported("multiGet")
  override def getMergedValues(key: Array[Byte], cfName: String): Iterator[ArrayIndexRange[Byte]] =
    unsupported("getMergedValues")
  override def putList(
      key: Array[Byte], values: List[Array[Byte]], cfName: String, includesPrefix: Boolean,
      includesChecksum: Boolean, deriveCfName: Boolean): Unit = unsupported("putList")
  override def merge(
      key: Array[Byte], value: Array[Byte], cfName: String, includesPrefix: Boolean,
      deriveCfName: Boolean, includesChecksum: Boolean): Unit = unsupported("merge")
  override def mergeList(
      key: Array[Byte], values: List[Array[Byte]], cfName: String, includesPrefix: Boolean,
      includesChecksum: Boolean, deriveCfName: Boolean): Unit = unsupported("mergeList")
  override def deleteRange(
      beginKey: Array[Byte], endKey: Array[Byte], cfName: String, includesPrefix: Boolean,
      includesChecksum: Boolean): Unit = unsupported("deleteRange")
  override def prefixScan(prefix: Array[Byte], cfName: String): NextIterator[ByteArrayPair] =
    unsupported("prefixScan")
  override def rangeScan(
      startKey: Option[Array[Byte]], endKey: Option[Array[Byte]], cfName: String)
      : NextIterator[ByteArrayPair] = unsupported("rangeScan")

  /** No operator whose storage is binned needs it; failing beats reading in a wrong order. */
  private def unsupported(operation: String): Nothing = throw BinshiftException.unsupportedOperator(
    s"$storeId is binned and does not support $operation")

  private def stored(key: Array[Byte]): Array[Byte] = if (raw) key else BinKeyCodec.encode(bin, key)

  /** Refuses a key whose bin is another partition's: a routing error must not corrupt state. */
  private def storedAsOwner(key: Array[Byte]): Array[Byte] = if (raw) key else {
    if (bin < 0 || bin >= owners.length || owners(bin) != partitionId) throw notOwned()
    BinKeyCodec.encode(bin, key)
  }

  private def notOwned(): BinshiftException = BinshiftException.migration(
    s"a row of bin $bin reached partition $partitionId of operator ${storeId.operatorId}, but the bin " +
      s"belongs to partition ${owners.lift(bin).getOrElse("(none)")}; the batch fails and no state " +
      "changes; restart the query from its checkpoint and report this as a bug of binshift")

  private def replaying[T](body: => T): T = inStoredForm(body)

  private def inStoredForm[T](body: => T): T = {
    raw = true
    try body finally raw = false
  }
}

private[binshift] object BinnedRocksDB {
  private val NoBin = -1
}

/** What one load moved: counts, bytes of keys and values, and milliseconds. */
private[binshift] final case class SwitchStats(
    binsAdopted: Int, binsReleased: Int, rowsAdopted: Long, bytesAdopted: Long, adoptMs: Long)

private[binshift] object SwitchStats {
  val None: SwitchStats = SwitchStats(0, 0, 0L, 0L, 0L)
}

/** The same rows with keys as Spark encoded them. */
private final class StrippedIterator(rows: NextIterator[ByteArrayPair])
  extends NextIterator[ByteArrayPair] {
  private val pair = new ByteArrayPair()

  override protected def getNext(): ByteArrayPair = if (rows.hasNext) {
    val row = rows.next()
    pair.set(BinKeyCodec.stripBin(row.key), row.value)
    pair
  } else {
    finished = true
    null
  }

  override protected def close(): Unit = rows.closeIfNeeded()
}
