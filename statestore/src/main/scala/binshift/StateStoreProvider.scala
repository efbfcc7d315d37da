package binshift

import org.apache.spark.sql.execution.streaming.state.binshift.provider.BinnedStateStoreProvider

/**
 * The class a user names in `spark.sql.streaming.stateStore.providerClass`.
 *
 * Spark's RocksDB provider whose keys are organised into bins that a running query can move from
 * one state partition to another at a micro-batch boundary.
 */
class StateStoreProvider extends BinnedStateStoreProvider
