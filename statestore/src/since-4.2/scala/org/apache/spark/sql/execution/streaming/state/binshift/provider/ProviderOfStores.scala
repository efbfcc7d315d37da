package org.apache.spark.sql.execution.streaming.state.binshift.provider

import org.apache.spark.sql.execution.streaming.state.{ReadStateStore, RocksDBStateStoreProvider, StateStore}

/** How a provider hands out stores since Spark 4.2. */
private[binshift] trait ProviderOfStores extends RocksDBStateStoreProvider {

  /** The store that is handed out in place of Spark's. */
  protected def wrap(store: StateStore): StateStore

  /** Spark's store within one that was handed out, and the provider that handed it out. */
  protected def unwrap(store: ReadStateStore): Option[(ReadStateStore, ProviderOfStores)]

  override def getStore(
      version: Long, uniqueId: Option[String], forceSnapshotOnCommit: Boolean, loadEmpty: Boolean): StateStore =
    wrap(super.getStore(version, uniqueId, forceSnapshotOnCommit, loadEmpty))

  override def upgradeReadStoreToWriteStore(
      readStore: ReadStateStore, version: Long, uniqueId: Option[String], forceSnapshotOnCommit: Boolean): StateStore =
    unwrap(readStore) match {
      // Spark's rule: a read store is upgraded by the provider that made it, should maintenance have
      // replaced that provider in between.
      case Some((_, other)) if other ne this =>
        other.upgradeReadStoreToWriteStore(readStore, version, uniqueId, forceSnapshotOnCommit)
      case Some((own, _)) => wrap(super.upgradeReadStoreToWriteStore(own, version, uniqueId, forceSnapshotOnCommit))
      case None => super.upgradeReadStoreToWriteStore(readStore, version, uniqueId, forceSnapshotOnCommit)
    }
}
