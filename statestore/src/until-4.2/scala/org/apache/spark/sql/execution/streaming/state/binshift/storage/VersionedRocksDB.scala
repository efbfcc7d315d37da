package org.apache.spark.sql.execution.streaming.state.binshift.storage

import org.apache.spark.sql.execution.streaming.state.RocksDB

/** The overridden methods of `RocksDB` that Spark 4.2 and earlier versions declare in their own way. */
private[binshift] trait VersionedRocksDB extends RocksDB {

  /** Runs a part of maintenance, one at a time. */
  protected def maintaining(work: => Unit): Unit

  protected def unsupported(operation: String): Nothing

  /** Uploads the snapshots that wait for it, and cleans up: maintenance is one in Spark 4.2. */
  def uploadSnapshots(): Unit = doMaintenance()

  override def doMaintenance(): Unit = maintaining(super.doMaintenance())
}

private[binshift] object VersionedRocksDB {
  /** True because readers of state open stores to write and then abort them. So only a commit shows that a store writes. */
  val ReadersOpenToWrite: Boolean = true
}
