package org.apache.spark.sql.execution.streaming.state.binshift

import java.io.File

import org.apache.hadoop.conf.Configuration

import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.util.NextIterator

/**
 * Spark's RocksDB with the bin in each key (see [[BinKeyCodec]]), inside its column family.
 *
 * What it relies on in Spark's `RocksDB`: everything that stores, finds or scans rows goes through
 * the methods overridden here, and changelog replay through the same `put`, `merge` and `remove`;
 * `iterator(family)` is a `prefixScan` with an empty prefix where there are families; iterators hand
 * out fresh key arrays.
 *
 * Used by one task at a time, which the provider's state machine ensures; maintenance threads only
 * call methods that are not overridden here.
 *
 * @param storeId store whose content this is
 * @param spark   what Spark's provider gave for the database
 */
private[binshift] abstract class BinKeyedRocksDB(
    storeId: StateStoreId,
    spark: RocksDBArguments)
  extends RocksDB(spark.dfsRootDir, spark.conf, spark.localRootDir, spark.hadoopConf, spark.loggingId,
    spark.useColumnFamilies, spark.enableStateStoreCheckpointIds, spark.partitionId, spark.eventForwarder,
    spark.uniqueId) {

  protected final def partitionId: Int = spark.partitionId

  /**
   * Bin of the key that the next operation concerns. Spark's signatures have no room for it and the
   * encoded key no longer tells it; [[BinnedStateStore]] sets it before each call.
   */
  var bin: Int = -1

  /** Owner of each bin at the loaded version; empty for a store that only reads. On the write path. */
  protected var owners: Array[Int] = Array.emptyIntArray

  private var touched = Array.emptyIntArray

  /** How often `bin` was looked up or written at the loaded version. */
  def touches(bin: Int): Int = if (bin < touched.length) touched(bin) else 0

  protected def forgetTouches(): Unit = touched = new Array[Int](owners.length)

  /** Counts writes to bins that are about to leave; null if there are none. On the write path. */
  protected def departing: DepartingRows = null

  /** Whether keys are in their stored form: while Spark replays, and while bins are moved. */
  private var raw = false

  /** Whether to keep Spark's own form, without bins, from now on. */
  protected def keepPlain(plain: Boolean): Unit = raw = plain

  private val codecs = new java.util.HashMap[String, BinKeyCodec]()

  override protected def createFileManager(
      dfsRootDir: String, localTempDir: File, hadoopConf: Configuration, codecName: String,
      loggingId: String, storeConf: StateStoreConf): RocksDBFileManager =
    new BinnedFileManager(dfsRootDir, localTempDir, hadoopConf, codecName, loggingId, storeConf,
      conf.fileChecksumEnabled, fileChecksumThreadPoolSize)

  /** Bins that this partition owns at the loaded version. */
  def binsOwned: Int = owners.count(_ == partitionId)

  /** Runs `body`, in which keys are given and handed out as they are stored, with their bins. */
  def inStoredForm[T](body: => T): T = {
    val outer = raw
    raw = true
    try body finally raw = outer
  }

  override def get(key: Array[Byte], cfName: String): Array[Byte] = super.get(stored(key, cfName), cfName)

  override def keyExists(key: Array[Byte], cfName: String): Boolean =
    super.keyExists(stored(key, cfName), cfName)

  override def getMergedValues(key: Array[Byte], cfName: String): Iterator[ArrayIndexRange[Byte]] =
    super.getMergedValues(stored(key, cfName), cfName)

  /** [[BinnedStateStore]] looks keys up one by one, since each has a bin of its own. */
  override def multiGet(keys: Array[Array[Byte]], cfName: String): Iterator[Array[Byte]] =
    unsupported("multiGet")

  override def put(
      key: Array[Byte], value: Array[Byte], cfName: String, includesPrefix: Boolean,
      deriveCfName: Boolean, includesChecksum: Boolean): Unit = {
    val counts = if (raw) null else departing
    if (counts != null) counts.enter(bin)
    super.put(storedAsOwner(key, cfName), value, cfName, includesPrefix, deriveCfName, includesChecksum)
    if (counts != null) counts.leave(bin)
  }

  override def putList(
      key: Array[Byte], values: List[Array[Byte]], cfName: String, includesPrefix: Boolean,
      includesChecksum: Boolean, deriveCfName: Boolean): Unit = {
    val counts = if (raw) null else departing
    if (counts != null) counts.enter(bin)
    super.putList(storedAsOwner(key, cfName), values, cfName, includesPrefix, includesChecksum, deriveCfName)
    if (counts != null) counts.leave(bin)
  }

  override def merge(
      key: Array[Byte], value: Array[Byte], cfName: String, includesPrefix: Boolean,
      deriveCfName: Boolean, includesChecksum: Boolean): Unit = {
    val counts = if (raw) null else departing
    if (counts != null) counts.enter(bin)
    super.merge(storedAsOwner(key, cfName), value, cfName, includesPrefix, deriveCfName, includesChecksum)
    if (counts != null) counts.leave(bin)
  }

  override def mergeList(
      key: Array[Byte], values: List[Array[Byte]], cfName: String, includesPrefix: Boolean,
      includesChecksum: Boolean, deriveCfName: Boolean): Unit = {
    val counts = if (raw) null else departing
    if (counts != null) counts.enter(bin)
    super.mergeList(storedAsOwner(key, cfName), values, cfName, includesPrefix, includesChecksum, deriveCfName)
    if (counts != null) counts.leave(bin)
  }

  override def remove(
      key: Array[Byte], cfName: String, includesPrefix: Boolean, deriveCfName: Boolean,
      includesChecksum: Boolean): Unit = {
    val counts = if (raw) null else departing
    if (counts != null) counts.enter(bin)
    super.remove(storedAsOwner(key, cfName), cfName, includesPrefix, deriveCfName, includesChecksum)
    if (counts != null) counts.leave(bin)
  }

  /** Of use only within one bin; no operator calls it. */
  override def deleteRange(
      beginKey: Array[Byte], endKey: Array[Byte], cfName: String, includesPrefix: Boolean,
      includesChecksum: Boolean): Unit = unsupported("deleteRange")

  /** Spark scans the family and removes each key that it finds. */
  override def removeColFamilyIfExists(cfName: String): Boolean =
    inStoredForm(super.removeColFamilyIfExists(cfName))

  override def iterator(): NextIterator[ByteArrayPair] =
    if (raw) super.iterator() else new StrippedIterator(super.iterator(), codec(StateStore.DEFAULT_COL_FAMILY_NAME))

  /** An empty prefix is Spark's way to ask for a whole family. */
  override def prefixScan(prefix: Array[Byte], cfName: String): NextIterator[ByteArrayPair] =
    if (raw) super.prefixScan(prefix, cfName)
    else {
      val form = codec(cfName)
      val from = if (form.isBehind || prefix.isEmpty) prefix else form.encode(bin, prefix)
      new StrippedIterator(super.prefixScan(from, cfName), form)
    }

  /** Of one key's rows, whose bin is set; across all keys only where the bin is behind the key. */
  override def rangeScan(
      startKey: Option[Array[Byte]], endKey: Option[Array[Byte]], cfName: String)
      : NextIterator[ByteArrayPair] =
    if (raw) super.rangeScan(startKey, endKey, cfName)
    else {
      val form = codec(cfName)
      val rows = if (form.isBehind || startKey.isEmpty && endKey.isEmpty) {
        super.rangeScan(startKey, endKey, cfName)
      } else {
        super.rangeScan(
          startKey.map(form.encode(bin, _)).orElse(BinKeyCodec.lowerBound(bin)),
          endKey.map(form.encode(bin, _)).orElse(BinKeyCodec.lowerBound(bin + 1)),
          cfName)
      }
      new StrippedIterator(rows, form)
    }

  /** Without it, operators fall back on `rangeScan`; [[BinnedStateStore]] does not offer it. */
  override def reusableIterator(cfName: String): RocksDBIterator = unsupported("reusableIterator")

  private def codec(family: String): BinKeyCodec = {
    val known = codecs.get(family)
    if (known != null) known else {
      val made = BinKeyCodec.of(family)
      codecs.put(family, made)
      made
    }
  }

  private def stored(key: Array[Byte], family: String): Array[Byte] = if (raw) key else {
    if (bin >= 0 && bin < touched.length) touched(bin) += 1
    codec(family).encode(bin, key)
  }

  /** Refuses a key whose bin is another partition's: a routing error must not corrupt state. */
  private def storedAsOwner(key: Array[Byte], family: String): Array[Byte] = if (raw) key else {
    if (bin < 0 || bin >= owners.length || owners(bin) != partitionId) throw notOwned()
    touched(bin) += 1
    codec(family).encode(bin, key)
  }

  private def notOwned(): BinshiftException = BinshiftException.migration(
    s"a row of bin $bin reached partition $partitionId of operator ${storeId.operatorId}, but the bin " +
      s"belongs to partition ${owners.lift(bin).getOrElse("(none)")}; the batch fails and no state " +
      "changes; restart the query from its checkpoint and report this as a bug of binshift")

  /** Failing beats reading in a wrong order. */
  private def unsupported(operation: String): Nothing = throw BinshiftException.unsupportedOperator(
    s"$storeId is binned and does not support $operation; report the operator that needs it")
}

/** The arguments of `RocksDB`, which the provider hands through to it. */
private[binshift] final case class RocksDBArguments(
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

/** The same rows with keys as Spark encoded them. */
private final class StrippedIterator(rows: NextIterator[ByteArrayPair], codec: BinKeyCodec)
  extends NextIterator[ByteArrayPair] {
  private val pair = new ByteArrayPair()

  override protected def getNext(): ByteArrayPair = if (rows.hasNext) {
    val row = rows.next()
    pair.set(codec.stripBin(row.key), row.value)
    pair
  } else {
    finished = true
    null
  }

  override protected def close(): Unit = rows.closeIfNeeded()
}
