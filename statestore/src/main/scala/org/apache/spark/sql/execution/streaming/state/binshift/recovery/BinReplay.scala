package org.apache.spark.sql.execution.streaming.state.binshift.recovery

import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.execution.streaming.state.binshift.routing.{EpochRouting, Owners}
import org.apache.spark.sql.execution.streaming.state.binshift.storage._

/**
 * Adds the bins of other partitions to Spark's replay of a store's changelogs, version by version.
 *
 * Everything is called on the thread that loads the store. Nothing is held between two loads.
 *
 * @param wanted  the bins that are read, of a store that only reads
 * @param adopted called when a replay took anything from another partition
 */
private[binshift] final class BinReplay(
    db: BinKeyedRocksDB, storeId: StateStoreId, routing: EpochRouting, arguments: RocksDBArguments,
    wanted: Option[Set[Int]], adopted: () => Unit) {

  /** Runs `body`, in which Spark brings the database up to `version` from the checkpoint if it has to. */
  def upTo[T](version: Long)(body: => T): T = {
    replayed = version
    try db.inStoredForm(body)
    finally {
      beginsAnew()
      owners = None
    }
  }

  /** Called when a load that failed is repeated: the database only has the content of a snapshot again. */
  def beginsAnew(): Unit = {
    recovery.foreach(_.close())
    recovery = None
  }

  /** The part of the replay of `version` that comes from other partitions; `None` if no switch affects the rest of the replay. */
  def of(version: Long): Option[BinnedFileManager.Replay] = {
    def isSwitched = ownersNow.changed(storeId.partitionId, version - 1, replayed - 1, bin => wanted.forall(_(bin)))
    Option.when(version <= replayed && (recovery.exists(_.isBefore(version)) || isSwitched)) {
      new BinnedFileManager.Replay {
        private lazy val of = recovering(version)
        override def begin(): Unit = {
          of.advance(version)
          if (of.hasAdopted) adopted()
        }
        override def keeps(kind: RecordType.Value, key: Array[Byte], value: Array[Byte]): Boolean = of.keeps(kind, key)
      }
    }
  }

  /** The version up to which changelogs are replayed, and the recovery of bins of other partitions. */
  private var replayed = -1L
  private var recovery: Option[BinRecovery] = None

  /** The owners of bins up to the version that is being replayed. */
  private var owners: Option[Owners] = None

  /** The recovery that has reached the version before `version`. A replay may start over, with another snapshot. */
  private def recovering(version: Long): BinRecovery = recovery.filter(_.isBefore(version)).getOrElse {
    recovery.foreach(_.close())
    val owned = ownersNow.table(ownersNow.at(replayed)).binsOf.lift(storeId.partitionId).fold(Set.empty[Int])(_.toSet)
    val made = BinRecovery.ofReplay(db, storeId, routing, arguments, wanted.getOrElse(owned), replayed, version - 1)
    recovery = Some(made)
    made
  }

  private def ownersNow: Owners = owners.getOrElse {
    val made = routing.owners(replayed)
    owners = Some(made)
    made
  }
}
