package org.apache.spark.sql.execution.streaming.state.binshift.storage

import java.util.concurrent.ConcurrentHashMap

import org.rocksdb.{Options, RateLimiter, RateLimiterMode, RocksDB => NativeRocksDB}

/**
 * Spreads RocksDB's compactions over time, by bounding the bytes a second that compactions of all stores of an executor read.
 *
 * After every few snapshots, the files of a store are merged. Without a bound, and for all stores of an operator one after the other,
 * that takes a core for several epochs, which become half as long again. At a pace that just leaves enough time for merging, more
 * epochs are a fifth longer instead. RocksDB asks a limiter before each read of a compaction. Lookups, and flushes, for which
 * commits wait, are not limited. While a store has too many files, nothing is held back, because lookups have to search each of
 * them. Ingested files of bins don't count, because they have no keys in common. One RocksDB thread compacts all databases of a
 * process, so stores of other providers on this executor wait for those that are held back.
 *
 * Relies on RocksDB: only compactions ask a limiter in mode `READS_ONLY`; one limiter may serve several databases; a new rate takes
 * effect with the next refill.
 */
private[binshift] object CompactionPace {
  /** The period for which the limiter gives out bytes at once. */
  private val RefillMicros = 20000L
  private val Fairness = 10
  /** The rate for stores that are behind: more than a compaction can merge on most disks. */
  private val Unlimited = 128L << 20
  /** How much a compaction reads at once. It is small, so that a compaction that is held back can soon end with its store. */
  private val ReadAhead = 256L << 10
  /** A store is behind if it has this many times the files that start a compaction. */
  private val Behind = 2

  private lazy val limiter =
    new RateLimiter(Unlimited, RefillMicros, Fairness, RateLimiterMode.READS_ONLY, false)
  private val late = ConcurrentHashMap.newKeySet[AnyRef]()
  /** An upper bound on the files in level 0 of each store that are ingested bins. */
  private val filesOfBins = new ConcurrentHashMap[AnyRef, Integer]()
  @volatile private var pace = Unlimited
  private var isLifted = false

  /**
   * Makes a database that is about to be opened with `options` keep to the pace.
   *
   * @param bytesPerSecond the value of the newest store applies to the whole executor
   */
  def limit(options: Options, bytesPerSecond: Long): Unit = {
    options.setRateLimiter(limiter)
    options.setCompactionReadaheadSize(ReadAhead)
    pace = bytesPerSecond
    adjust()
  }

  /** Runs `body`, which ingests files of which a lookup reads only one. */
  def takingIn[T](store: AnyRef, db: NativeRocksDB, files: Int)(body: => T): T = {
    val before = filesOf(db)
    val result = body
    // RocksDB's memory may have been written to a file as well, and other files may have been merged.
    val come = math.min(files, filesOf(db) - before)
    if (come > 0) filesOfBins.merge(store, come, Integer.sum(_, _))
    result
  }

  /** Called when all files of a store were replaced. */
  def forget(store: AnyRef): Unit = filesOfBins.remove(store)

  /** Called with each commit of a store that keeps to the pace, whose database was opened with `options`. */
  def committed(store: AnyRef, db: NativeRocksDB, options: Options): Unit = {
    val files = filesOf(db)
    val trigger = options.level0FileNumCompactionTrigger
    val ofBins = filesOfBins.computeIfPresent(store, (_, n) => math.min(n, files))
    val overlapping = if (ofBins == null) files else files - ofBins
    val hasChanged = if (overlapping >= Behind * trigger) late.add(store) else overlapping < trigger && late.remove(store)
    if (hasChanged) adjust()
  }

  def closed(store: AnyRef): Unit = {
    forget(store)
    if (late.remove(store)) adjust()
  }

  /** Lifts the bound for good, because the process ends. */
  def lift(): Unit = synchronized {
    isLifted = true
    adjust()
  }

  /** Bytes per second that compactions may read now. */
  def current: Long = limiter.getBytesPerSecond

  /** Bytes that compactions have read on this executor. */
  def bytesRead: Long = limiter.getTotalBytesThrough

  private def filesOf(db: NativeRocksDB): Int = db.getProperty("rocksdb.num-files-at-level0").toInt

  private def adjust(): Unit = synchronized {
    val rate = if (late.isEmpty && !isLifted) pace else math.max(pace, Unlimited)
    if (rate != current) limiter.setBytesPerSecond(rate)
  }
}
