package org.apache.spark.sql.execution.streaming.state.binshift.recovery

import org.apache.spark.sql.execution.streaming.state.{RocksDB, RocksDBLineageManager, StateStoreCheckpointInfo, StateStoreId}
import org.apache.spark.sql.execution.streaming.state.binshift.routing.EpochRouting
import org.apache.spark.sql.execution.streaming.state.binshift.storage.{BinKeyedRocksDB, BinnedFileManager, OldVersions, RocksDBArguments, SnapshotLineage}

/**
 * A binned database that Spark brings to a version from the checkpoint, including the rows that its bins had in other partitions
 * ([[BinReplay]]).
 *
 * @param wanted for a store that only reads, the bins that are read; rows of other bins may be missing
 */
private[binshift] abstract class ReplayingRocksDB(
    storeId: StateStoreId,
    routing: EpochRouting,
    arguments: RocksDBArguments,
    override val wanted: Option[Set[Int]])
  extends BinKeyedRocksDB(storeId, arguments) with BinnedFileManager.Binding {

  private val replay = new BinReplay(this, storeId, routing, arguments, wanted, () => replayHasAdopted())

  protected final def binnedFiles: BinnedFileManager = fileManager.asInstanceOf[BinnedFileManager]

  binnedFiles.bind(this)

  /** Relies on Spark: its constructor doesn't use the lineage. */
  override protected[sql] val lineageManager: RocksDBLineageManager =
    new SnapshotLineage(item => binnedFiles.hasWhole(item.version, Some(item.checkpointUniqueId)))

  /** Runs `body`, in which Spark brings the database up to `version` from the checkpoint if it has to. */
  protected final def replayingUpTo[T](version: Long)(body: => T): T = replay.upTo(version)(body)

  /** Called when a replay took something from another partition. */
  protected def replayHasAdopted(): Unit

  override def beginsAnew(): Unit = replay.beginsAnew()

  override def replayOf(version: Long): Option[BinnedFileManager.Replay] = replay.of(version)

  override def database: BinKeyedRocksDB = this

  /** The store's directory in the checkpoint. */
  def dfsRoot: String = arguments.dfsRootDir
}

/** A private copy of a store for reading `wanted`. Nobody commits to it, or fetches its files ahead. */
private[recovery] final class PrivateRocksDB(
    storeId: StateStoreId, routing: EpochRouting, arguments: RocksDBArguments, wanted: Option[Set[Int]])
  extends ReplayingRocksDB(storeId, routing, arguments, wanted) {

  override def loadAt(version: Long, stateStoreCkptId: Option[String], readOnly: Boolean, loadEmpty: Boolean): RocksDB = {
    replayingUpTo(version)(loadBySpark(version, stateStoreCkptId, readOnly, loadEmpty))
    this
  }

  override def commitVersion(forceSnapshot: Boolean): (Long, StateStoreCheckpointInfo) = unsupported("commit")

  override protected def replayHasAdopted(): Unit = ()

  override def replayOf(version: Long): Option[BinnedFileManager.Replay] =
    super.replayOf(version).orElse(Some(BinnedFileManager.BySpark))

  override protected def maintaining(work: => Unit): Unit = work

  override def keptFrom(retain: Int): Option[OldVersions.Decision] = None
}
