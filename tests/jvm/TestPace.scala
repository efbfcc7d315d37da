package org.apache.spark.sql.execution.streaming.state.binshift

import org.rocksdb.{FlushOptions, Options, RocksDB => NativeRocksDB}

import org.apache.spark.sql.execution.streaming.state.binshift.storage.CompactionPace

/** What compactions may read, and a database that has fallen behind with its own. */
object TestPace {
  def bytesPerSecond(): Long = CompactionPace.current

  def bytesRead(): Long = CompactionPace.bytesRead

  /** A database with so many files that are to be merged, which it does not do by itself. */
  def open(directory: String, files: Int): TestPace = {
    NativeRocksDB.loadLibrary()
    val options = new Options().setCreateIfMissing(true).setDisableAutoCompactions(true)
    val db = NativeRocksDB.open(options, directory)
    val flush = new FlushOptions().setWaitForFlush(true)
    for (i <- 1 to files) {
      db.put("key".getBytes, s"value$i".getBytes)
      db.flush(flush)
    }
    flush.close()
    new TestPace(options, db)
  }
}

final class TestPace(options: Options, db: NativeRocksDB) {
  def commit(): Unit = CompactionPace.committed(this, db, options)

  def merge(): Unit = db.compactRange()

  def close(): Unit = {
    CompactionPace.closed(this)
    db.close()
    options.close()
  }
}
