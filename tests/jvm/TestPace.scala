package org.apache.spark.sql.execution.streaming.state.binshift

import org.rocksdb.{FlushOptions, Options, RocksDB => NativeRocksDB}

import org.apache.spark.sql.execution.streaming.state.binshift.storage.CompactionPace

/** The pace of compactions, with a database that has fallen behind with its own. */
object TestPace {
  def bytesPerSecond(): Long = CompactionPace.current

  def bytesRead(): Long = CompactionPace.bytesRead

  /** Opens a database with a number of files to merge; it doesn't compact by itself. */
  def open(directory: String, files: Int): TestPace = {
    NativeRocksDB.loadLibrary()
    val options = new Options().setCreateIfMissing(true).setDisableAutoCompactions(true)
    val store = new TestPace(options, NativeRocksDB.open(options, directory))
    store.write(files)
    store
  }
}

final class TestPace(options: Options, db: NativeRocksDB) {
  def commit(): Unit = CompactionPace.committed(this, db, options)

  /** Adds a number of files. */
  def write(files: Int): Unit = {
    val flush = new FlushOptions().setWaitForFlush(true)
    for (i <- 1 to files) {
      db.put("key".getBytes, s"value$i".getBytes)
      db.flush(flush)
    }
    flush.close()
  }

  /** Adds a number of files of arriving bins. */
  def takeIn(files: Int): Unit = CompactionPace.takingIn(this, db, files)(write(files))

  /** Forgets the database, as if it were loaded again. */
  def forget(): Unit = CompactionPace.forget(this)

  def merge(): Unit = db.compactRange()

  def close(): Unit = {
    CompactionPace.closed(this)
    db.close()
    options.close()
  }
}
