package org.apache.spark.sql.execution.streaming.state.binshift.conversion

import org.apache.spark.sql.execution.streaming.state._

/** Reads whole partitions, and writes them from scratch, since Spark 4.2. */
private[binshift] object WholeStore {
  /** The rows of a family; several values of one key follow one another. */
  def rows(store: ReadStateStore, family: String, isMultiValued: Boolean): Iterator[UnsafeRowPair] =
    if (isMultiValued) store.iteratorWithMultiValues(family) else store.iterator(family)

  /** A provider for stores that are written from scratch; not initialized yet. */
  def provider(conf: StateStoreConf): StateStoreProvider = StateStoreProvider.create(conf.providerClass)

  /** The store of such a provider at `version`, without content; its commit makes a whole snapshot of the next one. */
  def empty(provider: StateStoreProvider, version: Long): StateStore =
    provider.getStore(version, None, forceSnapshotOnCommit = false, loadEmpty = true)
}
