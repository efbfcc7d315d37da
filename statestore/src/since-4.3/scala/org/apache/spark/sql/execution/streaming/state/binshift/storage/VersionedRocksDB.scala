package org.apache.spark.sql.execution.streaming.state.binshift.storage

import org.apache.spark.sql.execution.streaming.state.{RocksDB, RocksDBIterator}

/** The overridden methods of `RocksDB` that Spark declares in this way since 4.3. */
private[binshift] trait VersionedRocksDB extends RocksDB {

  /** Runs a part of maintenance, one at a time. */
  protected def maintaining(work: => Unit): Unit

  protected def unsupported(operation: String): Nothing

  /** Uploads the snapshots that wait for it. */
  def uploadSnapshots(): Unit = doSnapshotMaintenance()

  override def doSnapshotMaintenance(): Unit = maintaining(super.doSnapshotMaintenance())

  override def doCleanupMaintenance(): Unit = maintaining(super.doCleanupMaintenance())

  /** Without it, operators fall back on `rangeScan`; `BinnedStateStore` does not offer it. */
  override def reusableIterator(cfName: String): RocksDBIterator = unsupported("reusableIterator")
}

private[binshift] object VersionedRocksDB {
  /** Tells whether readers of state open stores to write and then abort them, so that only a commit shows that a store writes. */
  val ReadersOpenToWrite: Boolean = false
}
