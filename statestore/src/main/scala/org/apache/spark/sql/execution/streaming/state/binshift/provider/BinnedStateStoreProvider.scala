package org.apache.spark.sql.execution.streaming.state.binshift.provider

import java.io.File

import org.apache.hadoop.conf.Configuration

import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.execution.streaming.state.binshift.{BinshiftConf, BinshiftException}
import org.apache.spark.sql.execution.streaming.state.binshift.checkpoint.{ChangedKeys, ControlDir, Layout, Storage}
import org.apache.spark.sql.execution.streaming.state.binshift.conversion.{KeyForm, PartitionTakeover, StockKeys, StoreForm}
import org.apache.spark.sql.execution.streaming.state.binshift.keys.StoreBins
import org.apache.spark.sql.execution.streaming.state.binshift.routing.EpochRouting
import org.apache.spark.sql.execution.streaming.state.binshift.shipping.{BackgroundConf, StandbyStores}
import org.apache.spark.sql.execution.streaming.state.binshift.storage.{PlainRocksDB, RocksDBArguments}
import org.apache.spark.sql.types.StructType
import org.apache.spark.TaskContext

/**
 * Spark's RocksDB provider, with binned storage for the operators that can migrate.
 *
 * The checkpoint's [[Layout]], which the driver creates while it plans the first batch, says which storage an operator has. Operators
 * that are not binned get Spark's RocksDB, which can use files that are on the executor already.
 *
 * Relies on Spark: `init` creates the database through the protected `createRocksDB`. `upgradeReadStoreToWriteStore` accepts only its
 * own store class, so a wrapped read store is unwrapped first. Stores are returned only by `getStore`, `getReadStore`,
 * `replayStateFromSnapshot` and an upgrade. The provider is also constructed without arguments on the driver, only to ask for
 * metrics, and by readers of state. So nothing happens before `init`, and `init` writes nothing. For a running query, `init` reads
 * nothing either, because Spark calls it under a lock that the tasks of all queries in the JVM need.
 */
class BinnedStateStoreProvider extends RocksDBStateStoreProvider with ProviderOfStores {

  /** Set before `super.init`, which calls `createRocksDB`; `None` means Spark's storage. */
  private var storage: Option[BinnedStorage] = None

  /** The routing of a running query; `None` for a store of a reader. Set before `super.init`, too. */
  private var run: Option[EpochRouting] = None

  override def init(
      stateStoreId: StateStoreId,
      keySchema: StructType,
      valueSchema: StructType,
      keyStateEncoderSpec: KeyStateEncoderSpec,
      useColumnFamilies: Boolean,
      storeConf: StateStoreConf,
      hadoopConf: Configuration,
      useMultipleValuesPerKey: Boolean,
      stateSchemaProvider: Option[StateSchemaProvider]): Unit = {
    val runId = StateStoreProvider.getRunId(hadoopConf)
    val root = stateStoreId.checkpointRootLocation
    val isRouted = storeConf.sqlConfs.get(BinshiftConf.RoutedRun).contains(runId)
    run = Option.when(isRouted)(EpochRouting.forRun(runId, root, hadoopConf))
    val routing = run.getOrElse(EpochRouting.forReader(root, hadoopConf))
    for {
      layout <- if (isRouted) Some(Layout.parse(storeConf.sqlConfs(BinshiftConf.RoutedLayout)))
      else layoutOf(root, routing, hadoopConf)
      operator <- layout.operators.get(stateStoreId.operatorId) if operator.storage == Storage.Binned
    } {
      val binsOf = new StoreBins(operator.name, stateStoreId.storeName, layout.bins)
      binsOf.register(StateStore.DEFAULT_COL_FAMILY_NAME, keyStateEncoderSpec)
      val takeOver = layout.takenOverAt.map { epoch =>
        // Metadata can't be read beyond the newest logged epoch.
        val logged = if (storeConf.sqlConfs.get(BinshiftConf.RealTimeRun).contains("true")) epoch - 1 else epoch
        val keys = new StockKeys(KeyForm(keyStateEncoderSpec, valueSchema),
          StoreForm.families(stateStoreId, logged, hadoopConf), useColumnFamilies,
          storeConf.stateStoreEncodingFormat, stateSchemaProvider)
        val changed = ChangedKeys(stateStoreId.operatorId, operator.name, columns = Nil, epoch)
        new PartitionTakeover(epoch, stateStoreId, keys, binsOf,
          () =>
            routing.sayOfChangedKeys(stateStoreId.operatorId) {
              ChangedKeys.write(ControlDir.ofStateRoot(root, hadoopConf), changed)
            })
      }
      storage = Some(new BinnedStorage(routing, isRouted, binsOf, takeOver, storeConf, hadoopConf))
    }
    super.init(stateStoreId, keySchema, valueSchema, keyStateEncoderSpec, useColumnFamilies, storeConf,
      hadoopConf, useMultipleValuesPerKey, stateSchemaProvider)
  }

  /** The checkpoint's layout, for a store that only reads; `None` for a store outside of any checkpoint, as in batch queries. */
  private def layoutOf(root: String, routing: EpochRouting, hadoopConf: Configuration): Option[Layout] = {
    val layout = routing.layout
    if (layout.isEmpty && ControlDir.ofStateRoot(root, hadoopConf).isOfCheckpoint) {
      throw BinshiftException("CHECKPOINT_WITHOUT_BINS", "checkpoint" -> root).configuration(
        s"$root does not belong to a checkpoint of binshift (there is no binshift/layout.json next to it); " +
          "start the query with a new checkpoint, or with the provider that wrote this one")
    }
    layout
  }

  override protected def createRocksDB(
      dfsRootDir: String,
      conf: RocksDBConf,
      localRootDir: File,
      hadoopConf: Configuration,
      loggingId: String,
      useColumnFamilies: Boolean,
      enableStateStoreCheckpointIds: Boolean,
      partitionId: Int,
      eventForwarder: Option[RocksDBEventForwarder],
      uniqueId: Option[String]): RocksDB = {
    val arguments = RocksDBArguments(dfsRootDir, conf, localRootDir, hadoopConf, loggingId, useColumnFamilies,
      enableStateStoreCheckpointIds, partitionId, eventForwarder, uniqueId)
    (storage, run) match {
      case (Some(s), _) =>
        new BinnedRocksDB(stateStoreId, s.routing, s.isRouted, s.background, s.takeOver, arguments, s.storeConf.unloadOnCommit)
      case (None, Some(routing)) => new PlainRocksDB(
          arguments, StandbyStores.filesOf(dfsRootDir), routing.isDisowned(_, enableStateStoreCheckpointIds, _),
          routing.savepoints)
      case (None, None) => super.createRocksDB(dfsRootDir, conf, localRootDir, hadoopConf, loggingId,
          useColumnFamilies, enableStateStoreCheckpointIds, partitionId, eventForwarder, uniqueId)
    }
  }

  override def getReadStore(version: Long, uniqueId: Option[String]): StateStore =
    wrap(super.getReadStore(version, uniqueId))

  /** Called for a reader that names the snapshot from which to begin. */
  override def replayStateFromSnapshot(
      snapshotVersion: Long,
      endVersion: Long,
      readOnly: Boolean,
      snapshotVersionStateStoreCkptId: Option[String],
      endVersionStateStoreCkptId: Option[String]): StateStore = wrap(super.replayStateFromSnapshot(
      snapshotVersion, endVersion, readOnly, snapshotVersionStateStoreCkptId, endVersionStateStoreCkptId))

  override def getStateStoreChangeDataReader(
      startVersion: Long,
      endVersion: Long,
      colFamilyNameOpt: Option[String],
      endVersionStateStoreCkptId: Option[String]): StateStoreChangeDataReader = storage match {
    case Some(s) if s.takeOver.exists(startVersion <= _.epoch) =>
      val epoch = s.takeOver.get.epoch
      if (endVersion > epoch) throw BinshiftException("BEFORE_TAKEOVER", "epoch" -> epoch).configuration(
        s"the change feed cannot be read across epoch $epoch, at which the state was taken over from Spark's own " +
          s"provider; read up to batch ${epoch - 1}, or from batch ${epoch + 1} on")
      super.getStateStoreChangeDataReader(startVersion, endVersion, colFamilyNameOpt, endVersionStateStoreCkptId)
    case Some(s) =>
      s.routing.requireLogged(endVersion)
      val first = BinnedChangeFeed.firstToRead(stateStoreId.partitionId, s.routing, startVersion, endVersion)
      BinnedChangeFeed.reader(this, rocksDB, first, endVersion, colFamilyNameOpt,
        endVersionStateStoreCkptId, s.storeConf, s.hadoopConf)
    case None => super.getStateStoreChangeDataReader(
        startVersion, endVersion, colFamilyNameOpt, endVersionStateStoreCkptId)
  }

  override def supportedCustomMetrics: Seq[StateStoreCustomMetric] =
    super.supportedCustomMetrics ++ BinMetrics.All

  override protected def wrap(store: StateStore): StateStore = (storage, store, rocksDB) match {
    case (Some(s), rocks: RocksDBStateStoreProvider#RocksDBStateStore, db: BinnedRocksDB) =>
      new BinnedStateStore(rocks, this, db, s.binsOf, keyCheck(s, db, _))
    case _ => store
  }

  private def keyCheck(s: BinnedStorage, db: BinnedRocksDB, store: BinnedStateStore): KeyCheck =
    if (s.isRouted && s.binsOf.mayChangeKeys && TaskContext.get() != null) {
      def dir = ControlDir.ofStateRoot(stateStoreId.checkpointRootLocation, s.hadoopConf)
      new KeyCheck(TaskContext.get(), stateStoreId, store.version, db, s.binsOf, s.routing, dir)
    } else null

  override protected def unwrap(store: ReadStateStore): Option[(ReadStateStore, ProviderOfStores)] = store match {
    case binned: BinnedStateStore => Some((binned.delegate, binned.provider))
    case _ => None
  }
}

/** The fields of a provider of binned storage, besides Spark's own. */
private final class BinnedStorage(
    val routing: EpochRouting,
    val isRouted: Boolean,
    val binsOf: StoreBins,
    val takeOver: Option[PartitionTakeover],
    val storeConf: StateStoreConf,
    val hadoopConf: Configuration) {
  val background: BackgroundConf = BackgroundConf(storeConf.sqlConfs)
}
