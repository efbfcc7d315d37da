package org.apache.spark.sql.execution.streaming.state.binshift.storage

import java.util.concurrent.ConcurrentHashMap

import org.rocksdb.{Options, RateLimiter, RateLimiterMode, RocksDB => NativeRocksDB}

/**
 * Spreads RocksDB's compactions over time: all stores of an executor together read so many bytes a second for them.
 *
 * After every few snapshots, the files of a store are merged. Unbounded, and for all stores of an operator one after the
 * other, that is a core's work for several epochs, which take half as long again. At a pace that leaves the merging just
 * enough time, more epochs are a fifth longer. RocksDB asks a limiter before each read of a compaction; flushes, which
 * commits wait for, and lookups are not limited. While a store has piled up too many files, nothing is held back, since
 * lookups have to look into each of them. Files of bins that were taken in have no keys in common, and do not count. One
 * thread of RocksDB's compacts all databases of a process, so stores of other providers on this executor wait for those that
 * are held back.
 *
 * Relies on RocksDB: a limiter in mode `READS_ONLY` is asked by compactions alone; one limiter may serve several
 * databases; another rate is in force from the next refill on.
 */
private[binshift] object CompactionPace {
  /** The limiter gives out, at once, what is due in so long a time. */
  private val RefillMicros = 20000L
  private val Fairness = 10
  /** At least, for stores that are behind: more than a compaction can merge on most disks. */
  private val Unlimited = 128L << 20
  /** What a compaction reads at once, so that one that is held back is soon ready to end with its store. */
  private val ReadAhead = 256L << 10
  /** A store is behind that has so many times the files that begin a compaction. */
  private val Behind = 2

  private lazy val limiter =
    new RateLimiter(Unlimited, RefillMicros, Fairness, RateLimiterMode.READS_ONLY, false)
  private val late = ConcurrentHashMap.newKeySet[AnyRef]()
  /** How many of a store's files at level 0 are of bins that it has taken in: so many at most. */
  private val filesOfBins = new ConcurrentHashMap[AnyRef, Integer]()
  @volatile private var pace = Unlimited
  private var isLifted = false

  /**
   * Has a database that is about to be opened with `options` keep to the pace.
   *
   * @param bytesPerSecond that of the store that was made last holds for all of the executor
   */
  def limit(options: Options, bytesPerSecond: Long): Unit = {
    options.setRateLimiter(limiter)
    options.setCompactionReadaheadSize(ReadAhead)
    pace = bytesPerSecond
    adjust()
  }

  /** Runs `body`, which takes in a number of files that no lookup reads together. */
  def takingIn[T](store: AnyRef, db: NativeRocksDB, files: Int)(body: => T): T = {
    val before = filesOf(db)
    val result = body
    // What was in memory may have become a file as well, and others may have been merged.
    val come = math.min(files, filesOf(db) - before)
    if (come > 0) filesOfBins.merge(store, come, Integer.sum(_, _))
    result
  }

  /** All files of a store are others now. */
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

  /** Holds nothing back any more, for good: the process ends. */
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
