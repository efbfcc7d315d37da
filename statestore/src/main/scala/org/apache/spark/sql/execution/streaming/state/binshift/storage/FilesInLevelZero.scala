package org.apache.spark.sql.execution.streaming.state.binshift.storage

import org.rocksdb.Options

/**
 * Has writers of a database not wait until the files of bins that it has taken in are merged.
 *
 * RocksDB slows writers down at 20 files in level 0, and stops them at 36, so that lookups do not have to look into more. Bins
 * that come on demand are a file each, hundreds of them may be taken in at once, and each lies there if rows of its bin were
 * known before. A task would wait a second for a compaction, that of each store of the executor in turn. The files of bins
 * have no keys in common, so that a lookup by key reads one of them, whatever their number.
 *
 * A task that writes very much in one epoch does not wait for them either: compactions are held back until it commits
 * ([[CompactionPace]]).
 *
 * Relies on RocksDB: compactions begin as before, and bytes that are still to be merged hold writers back as before.
 */
private[binshift] object FilesInLevelZero {
  /** More than the bins of most queries. */
  private val SlowdownAt = 2000
  private val StopAt = 4000

  /** Called before a database is opened with `options`. */
  def raiseLimits(options: Options): Unit = {
    options.setLevel0SlowdownWritesTrigger(SlowdownAt)
    options.setLevel0StopWritesTrigger(StopAt)
  }
}
