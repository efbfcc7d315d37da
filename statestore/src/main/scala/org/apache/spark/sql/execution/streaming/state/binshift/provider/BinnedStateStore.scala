package org.apache.spark.sql.execution.streaming.state.binshift.provider

import org.apache.spark.TaskContext
import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.execution.streaming.state.binshift.BinshiftException
import org.apache.spark.sql.execution.streaming.state.binshift.keys._
import org.apache.spark.sql.execution.streaming.state.binshift.routing.TouchedKeys
import org.apache.spark.sql.types.StructType

/**
 * Spark's store for one version, with the bin of each key computed on the way in.
 *
 * It is a wrapper because Spark's provider creates its `RocksDBStateStore` in a private method, and because a key is still a row
 * at this point: its bin costs one hash, whatever the encoding of keys.
 *
 * It doesn't offer Spark's `SupportsReusableIterator`. Operators then read expired timers and TTLs with `rangeScan`, which has an
 * end.
 *
 * @param delegate Spark's store, which checks and counts as usual
 * @param db       the database below `delegate`
 * @param binsOf   bins of the keys, shared by the provider's stores
 * @param keyCheck makes the check for keys that change on their way; returns null if they can't
 */
private[binshift] final class BinnedStateStore(
    val delegate: RocksDBStateStoreProvider#RocksDBStateStore,
    val provider: BinnedStateStoreProvider,
    db: BinnedRocksDB,
    binsOf: StoreBins,
    keyCheck: BinnedStateStore => KeyCheck) extends FamilyRegistration with ReadOperations {

  override def id: StateStoreId = delegate.id
  override def version: Long = delegate.version

  override def get(key: UnsafeRow, colFamilyName: String): UnsafeRow = {
    enterKey(key, colFamilyName)
    delegate.get(key, colFamilyName)
  }

  override def valuesIterator(key: UnsafeRow, colFamilyName: String): Iterator[UnsafeRow] = {
    enterKey(key, colFamilyName)
    delegate.valuesIterator(key, colFamilyName)
  }

  override def put(key: UnsafeRow, value: UnsafeRow, colFamilyName: String): Unit = {
    enterWrite(key, colFamilyName)
    delegate.put(key, value, colFamilyName)
  }

  override def putList(key: UnsafeRow, values: Array[UnsafeRow], colFamilyName: String): Unit = {
    enterWrite(key, colFamilyName)
    delegate.putList(key, values, colFamilyName)
  }

  override def merge(key: UnsafeRow, value: UnsafeRow, colFamilyName: String): Unit = {
    enterWrite(key, colFamilyName)
    delegate.merge(key, value, colFamilyName)
  }

  override def mergeList(key: UnsafeRow, values: Array[UnsafeRow], colFamilyName: String): Unit = {
    enterWrite(key, colFamilyName)
    delegate.mergeList(key, values, colFamilyName)
  }

  override def remove(key: UnsafeRow, colFamilyName: String): Unit = {
    enterKey(key, colFamilyName)
    delegate.remove(key, colFamilyName)
  }

  /**
   * Scans a family. If bins are still on their way, the scan waits for all of them, with two exceptions. In a task that looks up
   * by key, it waits only when somebody reads from it, which may never happen. And a scan that only removes rows which no later
   * row meets leaves missing bins out.
   */
  override def iterator(colFamilyName: String): StateStoreIterator[UnsafeRowPair] =
    // A retired store has no column families either.
    if (db.pendingBins.missing == 0 && db.isRetired) new StateStoreIterator(Iterator.empty[UnsafeRowPair])
    else touchedKeys match {
      case Some(touched) if touched.leavesOut(id.operatorId) => scanToForget(colFamilyName, touched.onTheWay)
      case _ if db.pendingBins.missing == 0 => scanned(delegate.iterator(colFamilyName), colFamilyName)
      case Some(_) =>
        val scan = new WaitingScan(() => delegate.iterator(colFamilyName), () => db.pendingBins.requireAll())
        scanned(new StateStoreIterator(scan, () => scan.close()), colFamilyName)
      case None =>
        db.pendingBins.requireAll()
        scanned(delegate.iterator(colFamilyName), colFamilyName)
    }

  /**
   * Scans the rows that are here. If the values of keys are in another store, it leaves out all rows of bins that may still be on
   * their way, even those that are here. Such stores are committed one by one, perhaps by different attempts of the task, and
   * bins arrive at each attempt at a different time. This way, the rows that are left out depend on the epoch's plan alone.
   */
  private def scanToForget(family: String, onTheWay: Set[Int]): StateStoreIterator[UnsafeRowPair] =
    if (binsOf.storeOfValues.isEmpty) delegate.iterator(family)
    else {
      db.pendingBins.requireAllBut(onTheWay)
      val (rows, bins) = (delegate.iterator(family), binsOf.of(family))
      // The rows are copied because a filter looks ahead, and Spark's row is valid only until the next one is read.
      val copied = rows.filter(row => !onTheWay(bins(row.key))).map(row => new UnsafeRowPair(row.key.copy(), row.value.copy()))
      new StateStoreIterator(copied, () => rows.close())
    }

  /** Scans the rows of a prefix. It contains all partitioning columns, so these rows are in one bin. */
  override def prefixScan(
      prefixKey: UnsafeRow, colFamilyName: String): StateStoreIterator[UnsafeRowPair] = {
    enterKey(prefixKey, colFamilyName)
    delegate.prefixScan(prefixKey, colFamilyName)
  }

  override def createColFamilyIfAbsent(
      colFamilyName: String,
      keySchema: StructType,
      valueSchema: StructType,
      keyStateEncoderSpec: KeyStateEncoderSpec,
      useMultipleValuesPerKey: Boolean,
      isInternal: Boolean): Unit = {
    register(colFamilyName, keyStateEncoderSpec)
    delegate.createColFamilyIfAbsent(colFamilyName, keySchema, valueSchema, keyStateEncoderSpec,
      useMultipleValuesPerKey, isInternal)
  }

  override def removeColFamilyIfExists(colFamilyName: String): Boolean = {
    db.pendingBins.requireAll()
    delegate.removeColFamilyIfExists(colFamilyName)
  }

  override def commit(): Long = {
    if (check != null) check.requireAccepted()
    delegate.commit()
  }
  override def abort(): Unit = delegate.abort()
  override def release(): Unit = delegate.release()
  override def hasCommitted: Boolean = delegate.hasCommitted

  /** Returns the id that the driver knows as the base, because Spark checks that the store was based on it. */
  override def getStateStoreCheckpointInfo(): StateStoreCheckpointInfo = {
    val info = delegate.getStateStoreCheckpointInfo()
    if (info.stateStoreCkptId.isDefined && db.unknownBaseId.isDefined) {
      info.copy(baseStateStoreCkptId = db.unknownBaseId)
    } else {
      info
    }
  }

  /**
   * Adds binshift's metrics. Relies on Spark: it drops custom metrics of the store in which a join counts the values of keys, so
   * the store with the values reports them for both.
   */
  override def metrics: StateStoreMetrics = {
    val m = delegate.metrics
    val counts = for {
      store <- binsOf.storeOfCounts
      task <- attempt
      ofCounts <- CountingStores.of(task, id.copy(storeName = store))
    } yield ofCounts
    m.copy(customMetrics = m.customMetrics ++ BinMetrics.of(db, counts))
  }

  override protected def enterBin(key: UnsafeRow, family: String): Unit = {
    setBin(key, family)
    if (db.pendingBins.missing > 0) db.pendingBins.require(db.bin)
  }

  /**
   * Called before rows of a key are read or written. The database waits for these rows or, if they weren't asked for, for their
   * bin.
   */
  override protected def enterKey(key: UnsafeRow, family: String): Unit = {
    setBin(key, family)
    if (db.pendingBins.missing > 0) askForRows()
  }

  private def enterWrite(key: UnsafeRow, family: String): Unit = {
    if (check == null) enterKey(key, family)
    else {
      val bins = binsOf.of(family)
      enter(check.toWrite(bins.hash(key), key, bins), key, bins)
      if (db.pendingBins.missing > 0) askForRows()
    }
  }

  private def setBin(key: UnsafeRow, family: String): Unit = {
    val bins = binsOf.of(family)
    val bin = bins(key)
    enter(if (check == null) bin else check.toRead(bin), key, bins)
  }

  private def enter(bin: Int, key: UnsafeRow, bins: KeyBins): Unit = {
    db.bin = bin
    if (db.sample != null) db.sample.offer(bin, key, bins)
  }

  /** Checks the keys of an operator whose keys may change on their way to its state; otherwise null. Read by each operation. */
  private val check: KeyCheck = keyCheck(this)

  override protected def scanned(rows: StateStoreIterator[UnsafeRowPair], family: String): StateStoreIterator[UnsafeRowPair] =
    if (check == null) rows else check.scanned(rows, family)

  /** Asks for the rows of the keys that the task has read since the last call and whose bins haven't arrived. */
  private def askForRows(): Unit = touchedKeys.foreach { touched =>
    val fresh = touched.after(keysSeen)
    keysSeen += fresh.size
    val missing = fresh.filter(t => db.pendingBins.isMissing(t.bin))
    if (missing.nonEmpty) db.pendingBins.askFor(rowsOfKeys.of(missing))
  }

  private var keysSeen = 0
  private lazy val rowsOfKeys = new RowsOfKeys(delegate, db, binsOf)

  /** The attempt of the task that created this store. Operators in Python call it on another thread, which belongs to no task. */
  private val attempt = Option(TaskContext.get()).map(_.taskAttemptId())

  if (binsOf.storeOfValues.isDefined) Option(TaskContext.get()).foreach(CountingStores.add(_, id, db))

  private def touchedKeys: Option[TouchedKeys] = attempt.flatMap(TouchedKeys.of)

  /**
   * Called before a range is read. If the family isn't read in order, the range is within one key, and either bound shows which
   * one. Otherwise it may have rows of all bins.
   */
  protected def enterRange(start: Option[UnsafeRow], end: Option[UnsafeRow], family: String): Unit =
    if (ColumnFamily.isReadInOrder(family) || start.isEmpty && end.isEmpty) db.pendingBins.requireAll()
    else start.orElse(end).foreach(enterBin(_, family))

  override protected def enterAll(): Unit = db.pendingBins.requireAll()

  override protected def register(family: String, spec: KeyStateEncoderSpec): Unit = {
    if (PartitioningKey.isReadInOrder(spec) != ColumnFamily.isReadInOrder(family)) {
      throw BinshiftException.unsupportedVersion(
        s"column family $family of $id is not read as this binshift expects; if it is a state variable of yours, give it " +
          "another name, else use the binshift for your Spark version")
    }
    binsOf.register(family, spec)
  }
}
