package org.apache.spark.sql.execution.streaming.state.binshift.storage

import org.rocksdb.Options

/**
 * Raises limits so that writers of a database don't wait until the files of ingested bins are merged.
 *
 * RocksDB slows writers down at 20 files in level 0, and stops them at 36, so that lookups don't have to search more files. Bins that
 * come on demand are a file each, and hundreds may be ingested at once. Each of these files is in level 0 if rows of its bin were
 * known before. So a task would wait a second for a compaction, that of each store of the executor in turn. But files of bins have
 * no keys in common, so a lookup by key only reads one of them, however many there are.
 *
 * A task that writes very much in one epoch doesn't wait for compactions either, because they are held back until it commits
 * ([[CompactionPace]]).
 *
 * Relies on RocksDB: compactions start as before, and bytes that have yet to be merged hold writers back as before.
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
