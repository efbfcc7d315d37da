package org.apache.spark.sql.execution.streaming.state.binshift.recovery

import org.apache.spark.sql.execution.streaming.state.{RocksDB, StateStoreCheckpointInfo, StateStoreId}
import org.apache.spark.sql.execution.streaming.state.binshift.routing.EpochRouting
import org.apache.spark.sql.execution.streaming.state.binshift.storage.{BinKeyedRocksDB, BinnedFileManager, RocksDBArguments}

/**
 * A binned database that Spark brings to a version from the checkpoint, with what its bins brought along from other
 * partitions ([[BinReplay]]).
 *
 * @param wanted the bins that are read, of a store that only reads; others may be there or not
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

  /** Runs `body`, in which Spark brings the database up to `version` from the checkpoint if it has to. */
  protected final def replayingUpTo[T](version: Long)(body: => T): T = replay.upTo(version)(body)

  /** A replay took something from another partition. */
  protected def replayHasAdopted(): Unit

  override def beginsAnew(): Unit = replay.beginsAnew()

  override def replayOf(version: Long): Option[BinnedFileManager.Replay] = replay.of(version)

  override def partition: Int = partitionId

  /** The store's directory in the checkpoint. */
  def dfsRoot: String = arguments.dfsRootDir
}

/** A private copy of a store, to read `wanted` from: nobody commits to it, or fetches its files ahead. */
private[recovery] final class PrivateRocksDB(
    storeId: StateStoreId, routing: EpochRouting, arguments: RocksDBArguments, wanted: Option[Set[Int]])
  extends ReplayingRocksDB(storeId, routing, arguments, wanted) {

  override def loadAt(version: Long, stateStoreCkptId: Option[String], readOnly: Boolean, loadEmpty: Boolean): RocksDB = {
    replayingUpTo(version)(loadBySpark(version, stateStoreCkptId, readOnly, loadEmpty))
    this
  }

  override def commitVersion(forceSnapshot: Boolean): (Long, StateStoreCheckpointInfo) = unsupported("commit")

  override protected def replayHasAdopted(): Unit = ()

  override protected def maintaining(work: => Unit): Unit = work

  override def keptFrom(retain: Int): Option[BinnedFileManager.Kept] = None
}
