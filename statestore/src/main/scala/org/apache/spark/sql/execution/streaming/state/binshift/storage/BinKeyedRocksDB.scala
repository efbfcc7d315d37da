package org.apache.spark.sql.execution.streaming.state.binshift.storage

import java.io.File
import java.util.UUID

import org.apache.hadoop.conf.Configuration

import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.execution.streaming.state.binshift.{BinshiftException, Faults}
import org.apache.spark.sql.execution.streaming.state.binshift.keys.{BinKeyCodec, ColumnFamily}
import org.apache.spark.sql.execution.streaming.state.binshift.routing.RoutingTable
import org.apache.spark.sql.execution.streaming.state.binshift.statistics.{BinCounts, RowCounts, RowsByBin}
import org.apache.spark.util.NextIterator

/**
 * Spark's RocksDB with the bin in each key (see [[BinKeyCodec]]), inside its column family.
 *
 * Relies on Spark: everything in `RocksDB` that stores, finds or scans rows goes through the methods overridden here, and
 * changelog replay goes through the same `put`, `merge` and `remove`. In a store with families, `iterator(family)` is a
 * `prefixScan` with an empty prefix. Iterators return fresh key arrays.
 *
 * Scans of a family that is read in order pass over rows of bins that this partition doesn't own. They are left from when it owned
 * these bins, and somebody deletes them later.
 *
 * Used by one task at a time, which the provider's state machine ensures. Maintenance threads only call methods that are not
 * overridden here.
 *
 * @param storeId   the store whose content this is
 * @param arguments the arguments for the database from Spark's provider
 */
private[binshift] abstract class BinKeyedRocksDB(
    storeId: StateStoreId,
    arguments: RocksDBArguments)
  extends RocksDB(arguments.dfsRootDir, arguments.conf, arguments.localRootDir, arguments.hadoopConf, arguments.loggingId,
    arguments.useColumnFamilies, arguments.enableStateStoreCheckpointIds, arguments.partitionId, arguments.eventForwarder,
    arguments.uniqueId)
  with RowOperations with LoadsAndCommits with VersionedRocksDB {

  FilesInLevelZero.raiseLimits(rocksDbOptions)

  protected final def partitionId: Int = arguments.partitionId

  def partition: Int = partitionId

  /** True if rows are in several column families. */
  def hasFamilies: Boolean = arguments.useColumnFamilies

  /**
   * Bin of the key in the next operation. Spark's signatures have no parameter for it, and the encoded key no longer shows it, so
   * [[BinnedStateStore]] sets it before each call.
   */
  var bin: Int = -1

  /** The table in force at the loaded version; null for a store that only reads. On the write path. */
  protected var table: RoutingTable = _

  /** Counts what happens to the bins at the loaded version; null for a store that only reads. */
  protected var counts: BinCounts = _

  /** How often `bin` was looked up or written at the loaded version. */
  def touches(bin: Int): Long = if (counts == null) 0 else counts.touches(bin)

  /**
   * How many rows each bin has in the database. The numbers begin with those of a snapshot ([[SnapshotRows]]), and each way in which rows
   * come, change or leave counts them by bin, so they always add up to Spark's counters. Only rows that a replay has yet to look up are
   * missing in both ([[QuickReplay]]).
   */
  val rowsByBin = new RowsByBin
  private var isCounted = true

  /** Called when a load begins with a snapshot. `rows` are those of its bins, if it says how many they are. */
  def countFrom(rows: Option[RowsByBin]): Unit = {
    rowsByBin.clear()
    rows.foreach(rowsByBin += _)
    isCounted = rows.isDefined
  }

  /**
   * Counts rows that came without Spark's knowledge. Spark's counters are not set to the sum: if the two ever disagreed, the next
   * snapshot's numbers would not add up, and a load would count again.
   */
  def addRows(more: RowsByBin): Unit = {
    rowsByBin += more
    RocksDBFields.setRows(this, RocksDBFields.rows(this) + more.total)
  }

  /** Counts the rows of bins no more, because they left without Spark's knowledge. */
  def dropRows(bins: Seq[Int]): Unit = {
    val gone = rowsByBin.of(bins).total
    rowsByBin.drop(bins)
    RocksDBFields.setRows(this, RocksDBFields.rows(this) - gone)
  }

  /** Runs `write`, which changes a row of `ofBin` whose key is in its stored form, and counts what it adds. */
  def counting(ofBin: => Int)(write: => Unit): Unit = {
    val before = RocksDBFields.rows(this)
    write
    countSince(before, ofBin)
  }

  /** Counts what was added to a row of `ofBin` since there were `before` rows. */
  def countSince(before: RowCounts, ofBin: => Int): Unit = {
    val added = RocksDBFields.rows(this) - before
    if (added != RowCounts.Zero) rowsByBin.add(ofBin, added)
  }

  /**
   * Counts the rows if the snapshot that was loaded doesn't say how many each bin has: one of Spark's own provider, of an older
   * binshift, or of a time when rows weren't counted. Returns whether it had to. Spark does the same if a snapshot lacks its number.
   */
  def countIfUnknown(of: Seq[Int] = 0 until BinKeyCodec.MaxBins): Boolean = {
    val isUnknown = !isCounted && conf.trackTotalNumberOfRows
    if (isUnknown) countAll(of)
    isUnknown
  }

  protected final def countAll(of: Seq[Int] = 0 until BinKeyCodec.MaxBins): Unit = if (conf.trackTotalNumberOfRows) {
    Faults.at("rows.count", partitionId)
    val native = RocksDBFields.native(this)
    val found = RowsByBin(ColumnFamily.numbered(this, hasFamilies).flatMap { family =>
      val rows = new Array[Long](BinKeyCodec.MaxBins)
      family.foreachRow(native, native.getDefaultColumnFamily, of)((key, _) => rows(family.binOf(key)) += 1)
      rows.iterator.zipWithIndex.collect { case (n, bin) if n > 0 => bin -> RowCounts.of(family.family.isInternal, n) }
    })
    countFrom(Some(found))
    RocksDBFields.setRows(this, found.total)
  }

  /** True if keys are given and returned in their stored form, as they are while Spark replays and while bins are moved. */
  private var raw = false

  /** Sets whether to use Spark's own form, without bins, from now on. */
  protected def keepPlain(plain: Boolean): Unit = raw = plain

  private val forms = new java.util.HashMap[String, FamilyWrites]()

  override protected def createFileManager(
      dfsRootDir: String, localTempDir: File, hadoopConf: Configuration, codecName: String,
      loggingId: String, storeConf: StateStoreConf): RocksDBFileManager =
    new BinnedFileManager(dfsRootDir, localTempDir, hadoopConf, codecName, loggingId, storeConf,
      conf.fileChecksumEnabled, fileChecksumThreadPoolSize)

  /** Bins that this partition owns at the loaded version. */
  def binsOwned: Int = if (table == null) 0 else table.sizes.lift(partitionId).getOrElse(0)

  /** True if the partition owns a bin at the loaded version; a store that only reads owns all. */
  def owns(bin: Int): Boolean = table == null || bin < table.owners.length && table.owners(bin) == partitionId

  /** The first bin that the partition owns at the loaded version, for keys that have changed; -1 if it owns none. */
  def homeBin: Int = {
    if (homeOf ne table) {
      home = table.owners.indexOf(partitionId)
      homeOf = table
    }
    home
  }

  private var home = -1
  private var homeOf: RoutingTable = _

  /** Runs `body`, in which keys are given and returned in their stored form, with their bins. */
  def inStoredForm[T](body: => T): T = {
    val outer = raw
    raw = true
    try body
    finally raw = outer
  }

  override def get(key: Array[Byte], cfName: String): Array[Byte] = if (isNoting) {
    noted = formOf(cfName).codec.encode(bin, key)
    null
  } else super.get(stored(key, cfName), cfName)

  /** The stored form of the key that `lookUp` asks for, a `get` or a `prefixScan` in `ofBin`. Reads nothing. */
  def keyOf(ofBin: Int)(lookUp: => Unit): Array[Byte] = {
    val outer = bin
    bin = ofBin
    isNoting = true
    try lookUp
    finally {
      isNoting = false
      bin = outer
    }
    noted
  }

  private var isNoting = false
  private var noted: Array[Byte] = _

  /**
   * Called before the row of a stored key is read or written, and before all rows are read whose keys begin with `stored`. The key's
   * bin is `bin`. On the path of each row.
   */
  protected def enterRow(stored: Array[Byte], family: String): Unit = ()

  /** Spark scans the family and removes each key that it finds. */
  override def removeColFamilyIfExists(cfName: String): Boolean =
    inStoredForm(super.removeColFamilyIfExists(cfName))

  override def iterator(): NextIterator[ByteArrayPair] =
    if (raw) super.iterator()
    else stripped(super.iterator(), formOf(StateStore.DEFAULT_COL_FAMILY_NAME).codec)

  /** Spark asks for a whole family with an empty prefix. */
  override def prefixScan(prefix: Array[Byte], cfName: String): NextIterator[ByteArrayPair] =
    if (raw) super.prefixScan(prefix, cfName)
    else {
      val form = formOf(cfName).codec
      val from = if (form.isBehind || prefix.isEmpty) prefix else form.encode(binThatIsSet, prefix)
      if (isNoting) {
        noted = from
        NoRows
      } else {
        if (prefix.nonEmpty) {
          countRead()
          enterRow(from, cfName)
        }
        stripped(super.prefixScan(from, cfName), form)
      }
    }

  /** Scans the rows of one key, whose bin is set, or across all keys if the bin comes behind the key. */
  override protected final def scanned(start: Option[Array[Byte]], end: Option[Array[Byte]], family: String)(
      scan: (Option[Array[Byte]], Option[Array[Byte]]) => NextIterator[ByteArrayPair]): NextIterator[ByteArrayPair] =
    if (raw) scan(start, end)
    else {
      val form = formOf(family).codec
      val rows = if (form.isBehind || start.isEmpty && end.isEmpty) scan(start, end)
      else {
        countRead()
        scan(
          start.map(form.encode(binThatIsSet, _)).orElse(BinKeyCodec.lowerBound(binThatIsSet)),
          end.map(form.encode(bin, _)).orElse(BinKeyCodec.lowerBound(bin + 1)))
      }
      stripped(rows, form)
    }

  private def stripped(rows: NextIterator[ByteArrayPair], form: BinKeyCodec): NextIterator[ByteArrayPair] =
    new StrippedIterator(rows, form, owns)

  private def formOf(family: String): FamilyWrites = {
    val known = forms.get(family)
    if (known != null) known
    else {
      val made = new FamilyWrites(family, this, arguments.useColumnFamilies)
      forms.put(family, made)
      made
    }
  }

  override protected final def stored(key: Array[Byte], family: String): Array[Byte] = if (raw) key
  else {
    countRead()
    val k = formOf(family).codec.encode(binThatIsSet, key)
    enterRow(k, family)
    k
  }

  /** Fails if no bin is set: a key that is looked up without its bin would seem to be missing. */
  private def binThatIsSet: Int =
    if (bin >= 0) bin
    else throw new IllegalStateException(s"a key of $storeId is read before its bin is set; report this as a bug of binshift")

  private def countRead(): Unit = if (counts != null) counts.read(bin)

  override protected final def writing(key: Array[Byte], family: String, bytes: Int, appended: Int)(
      write: Array[Byte] => Unit): Unit =
    if (raw) write(key)
    else {
      // A routing error must not corrupt state.
      if (table == null || bin < 0 || bin >= table.owners.length || table.owners(bin) != partitionId) throw notOwned()
      val form = formOf(family)
      val k = form.codec.encode(bin, key)
      enterRow(k, family)
      // Spark looks up each row before writing it, to keep count of rows, so this information is free.
      val before = RocksDBFields.rows(this, form.isInternal)
      write(k)
      val rows = RocksDBFields.rows(this, form.isInternal) - before
      counts.wrote(bin, rows, form.isInternal, bytes, appended)
      if (rows != 0) rowsByBin.add(bin, RowCounts.of(form.isInternal, rows))
    }

  private def notOwned(): BinshiftException =
    BinshiftException("BIN_NOT_OWNED", "bin" -> bin, "partition" -> partitionId).migration(
      s"a row of bin $bin reached partition $partitionId of operator ${storeId.operatorId}, but the bin " +
        s"belongs to partition ${Option(table).flatMap(_.owners.lift(bin)).getOrElse("(none)")}; the batch fails and no state " +
        "changes; restart the query from its checkpoint; if it fails again, report this as a bug of binshift")

  override protected def unsupported(operation: String): Nothing = throw BinshiftException.unsupportedOperator(
    s"$storeId is binned and does not support $operation; report the operator that needs it")
}

/** How the rows of a column family are stored and counted. */
private[storage] final class FamilyWrites(name: String, db: RocksDB, useColumnFamilies: Boolean) {
  val codec: BinKeyCodec = BinKeyCodec.of(name)
  lazy val isInternal: Boolean = ColumnFamily.isInternal(db, useColumnFamilies, name)
}

/** The arguments of `RocksDB`, which the provider passes on. */
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
    uniqueId: Option[String]) {

  /** For a private copy in a temporary directory of the executor, which reports nothing. */
  def inPrivate(name: String): RocksDBArguments = copy(localRootDir = OpenDatabases.temporaryDir(name), loggingId = name,
    eventForwarder = None, uniqueId = Some(s"$name-${UUID.randomUUID()}"))
}

private object NoRows extends NextIterator[ByteArrayPair] {
  override protected def getNext(): ByteArrayPair = {
    finished = true
    null
  }

  override protected def close(): Unit = ()
}

/** The rows of owned bins with keys as Spark encoded them. If bins come before keys, nobody else's rows are there. */
private final class StrippedIterator(rows: NextIterator[ByteArrayPair], codec: BinKeyCodec, owns: Int => Boolean)
  extends NextIterator[ByteArrayPair] {
  private val pair = new ByteArrayPair()

  override protected def getNext(): ByteArrayPair = {
    var row: ByteArrayPair = null
    while (row == null && rows.hasNext) {
      val next = rows.next()
      if (!codec.isBehind || owns(codec.binOf(next.key))) row = next
    }
    if (row == null) {
      finished = true
      null
    } else {
      pair.set(codec.stripBin(row.key), row.value)
      pair
    }
  }

  override protected def close(): Unit = rows.closeIfNeeded()
}
