package org.apache.spark.sql.execution.streaming.state.binshift.storage

import org.apache.spark.sql.execution.streaming.state.RocksDB

/** What is overridden in the `RocksDB` of Spark 4.2, but not in that of every version. */
private[binshift] trait VersionedRocksDB extends RocksDB {

  /** Runs a part of maintenance, one at a time. */
  protected def maintaining(work: => Unit): Unit

  protected def unsupported(operation: String): Nothing

  /** Uploads the snapshots that wait for it, and cleans up: maintenance is one in Spark 4.2. */
  def uploadSnapshots(): Unit = doMaintenance()

  override def doMaintenance(): Unit = maintaining(super.doMaintenance())
}

private[binshift] object VersionedRocksDB {
  /** Whether readers of state open stores to write, and abort them; then only a commit tells them from writers. */
  val ReadersOpenToWrite: Boolean = true
}
