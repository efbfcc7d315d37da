package org.apache.spark.sql.execution.streaming.state.binshift.provider

import java.io.File

import org.apache.hadoop.conf.Configuration

import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.execution.streaming.state.binshift.{BinshiftConf, BinshiftException}
import org.apache.spark.sql.execution.streaming.state.binshift.checkpoint.{ChangedKeys, ControlDir, Layout, Storage}
import org.apache.spark.sql.execution.streaming.state.binshift.conversion.{KeyForm, PartitionTakeover, StockKeys, StoreForm}
import org.apache.spark.sql.execution.streaming.state.binshift.keys.StoreBins
import org.apache.spark.sql.execution.streaming.state.binshift.routing.EpochRouting
import org.apache.spark.sql.execution.streaming.state.binshift.shipping.{BackgroundConf, FilesFetchedAhead}
import org.apache.spark.sql.execution.streaming.state.binshift.storage.{PlainRocksDB, RocksDBArguments}
import org.apache.spark.sql.types.StructType
import org.apache.spark.TaskContext

/**
 * Spark's RocksDB provider, with binned storage for the operators that can migrate.
 *
 * Which storage an operator has is written in the checkpoint's [[Layout]], which the driver creates
 * while it plans the first batch; operators that are not binned there get Spark's RocksDB, which
 * takes files that are on the executor already.
 *
 * Relies on Spark: `init` creates the database through the protected `createRocksDB`;
 * `upgradeReadStoreToWriteStore` accepts only its own store class, so a wrapped read store is
 * unwrapped first. Stores are handed out by `getStore`, `getReadStore`, `replayStateFromSnapshot` and an upgrade alone.
 * Constructed without arguments on the driver, just to ask for metrics, and by
 * readers of state; hence nothing happens before `init`, and nothing is written by `init`. For a query that runs, `init` reads
 * nothing either: Spark calls it under a lock that the tasks of all queries in the JVM need.
 */
class BinnedStateStoreProvider extends RocksDBStateStoreProvider with ProviderOfStores {

  /** Set before `super.init`, which calls `createRocksDB`; `None` means Spark's storage. */
  private var storage: Option[BinnedStorage] = None

  /** That of a query that runs; `None` for a store of a reader. Set before `super.init`, too. */
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
        // Metadata is not read beyond what is logged.
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

  /** The checkpoint's layout, for a store that only reads; `None` for a store outside of any checkpoint, as batch queries have them. */
  private def layoutOf(root: String, routing: EpochRouting, hadoopConf: Configuration): Option[Layout] = {
    val layout = routing.layout
    if (layout.isEmpty && ControlDir.ofStateRoot(root, hadoopConf).isOfCheckpoint) {
      throw BinshiftException("CHECKPOINT_WITHOUT_BINS", "checkpoint" -> root).configuration(
        s"$root belongs to no checkpoint of binshift (there is no binshift/layout.json next to it); " +
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
        new BinnedRocksDB(stateStoreId, s.routing, s.isRouted, s.background, s.takeOver, arguments)
      case (None, Some(routing)) => new PlainRocksDB(
          arguments, new FilesFetchedAhead(dfsRootDir), routing.isDisowned(_, enableStateStoreCheckpointIds, _))
      case (None, None) => super.createRocksDB(dfsRootDir, conf, localRootDir, hadoopConf, loggingId,
          useColumnFamilies, enableStateStoreCheckpointIds, partitionId, eventForwarder, uniqueId)
    }
  }

  override def getReadStore(version: Long, uniqueId: Option[String]): StateStore =
    wrap(super.getReadStore(version, uniqueId))

  /** By a reader that names the snapshot from which it begins. */
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

/** What a provider of binned storage holds beside Spark's own fields. */
private final class BinnedStorage(
    val routing: EpochRouting,
    val isRouted: Boolean,
    val binsOf: StoreBins,
    val takeOver: Option[PartitionTakeover],
    val storeConf: StateStoreConf,
    val hadoopConf: Configuration) {
  val background: BackgroundConf = BackgroundConf(storeConf.sqlConfs)
}
