package org.apache.spark.sql.execution.streaming.state.binshift.storage

import org.rocksdb.Options

/**
 * Has writers of a database not wait for the files in its level 0 to be merged.
 *
 * RocksDB slows writers down at 20 such files, and stops them at 36, so that lookups do not have to look into more. Bins that
 * come on demand are a file each, a hundred of them may be taken in at once, and each lies there if rows of its bin were known
 * before. A task would wait a second for a compaction, that of each store of the executor in turn. The files of bins have no
 * keys in common, so that a lookup reads one of them, whatever their number.
 *
 * Relies on RocksDB: it merges the files as before; and its limits on bytes that are still to be merged go on to hold writers back.
 */
private[binshift] object FilesInLevelZero {
  private val NoLimit = 1 << 20

  /** Called before a database is opened with `options`. */
  def unbound(options: Options): Unit = {
    options.setLevel0SlowdownWritesTrigger(NoLimit)
    options.setLevel0StopWritesTrigger(NoLimit)
  }
}
