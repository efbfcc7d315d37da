package org.apache.spark.sql.execution.streaming.state.binshift

import java.nio.file.{Files, Path}

import org.apache.hadoop.conf.Configuration

import org.apache.spark.sql.execution.streaming.state.binshift.storage.{RocksDBFields, SnapshotTurn}
import org.apache.spark.sql.execution.streaming.state.{RocksDB, RocksDBConf, StateStoreId}

/** A store of Spark's own whose snapshots take turns. */
object TestTurn {
  def open(directory: String, partition: Int, minDeltas: Int, isShared: Boolean): TestTurn = {
    val conf = RocksDBConf().copy(minDeltasForSnapshot = minDeltas, enableChangelogCheckpointing = true)
    val local = Files.createTempDirectory(Files.createDirectories(Path.of(directory)), "local")
    new TestTurn(
      new RocksDB(s"$directory/checkpoint", conf, local.toFile, new Configuration), StateStoreId(directory, 0, partition),
      isShared)
  }
}

final class TestTurn(db: RocksDB, store: StateStoreId, isShared: Boolean) {
  private val turn = new SnapshotTurn(db, store, isShared)
  private var version = 0L

  /** Commits another version; returns whether that made a snapshot. */
  def commit(isWhole: Boolean, hasAdopted: Boolean): Boolean = {
    db.load(version, None)
    db.put(s"$version".getBytes, "value".getBytes)
    version += 1
    if (hasAdopted) turn.request()
    turn.commit(version, isWhole)(db.commit())
    RocksDBFields.lastSnapshot(db) == version
  }

  def close(): Unit = db.close()
}
