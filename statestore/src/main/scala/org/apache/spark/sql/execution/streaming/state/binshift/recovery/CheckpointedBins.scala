package org.apache.spark.sql.execution.streaming.state.binshift.recovery

import scala.util.control.NonFatal

import org.apache.spark.internal.Logging
import org.apache.spark.sql.execution.streaming.state.binshift.Faults
import org.apache.spark.sql.execution.streaming.state.binshift.keys.{ColumnFamily, NumberedFamily}
import org.apache.spark.sql.execution.streaming.state.binshift.routing.EpochRouting
import org.apache.spark.sql.execution.streaming.state.binshift.storage.{BinKeyedRocksDB, RocksDBArguments, RocksDBFields}
import org.apache.spark.sql.execution.streaming.state.StateStoreId

/**
 * Reads bins of a partition from its checkpoint, as they were committed at a version.
 *
 * It opens a private copy of the partition in a temporary directory of this executor. The partition's own executor isn't
 * involved: it may be busy with a later version, or be gone. Bins that the partition adopted since its last snapshot are only
 * recovered if they are wanted.
 *
 * @param source    store of the partition to read from
 * @param arguments the arguments of the adopting database
 * @param point     the name of this reading for [[Faults]]
 */
private[binshift] final class CheckpointedBins(
    source: StateStoreId, routing: EpochRouting, arguments: RocksDBArguments, point: String = "checkpoint.read") extends Logging {

  /**
   * Calls `consume(step, family, key, value)` for each row of the bins of each step: step by step and family by family, in the
   * order of keys, with values in their stored form. Families have the numbers of the private copy. Calls `begin` before the first
   * row.
   */
  def foreachStoredRow(version: Long, steps: Seq[(Int, Seq[Int])])(begin: => Unit)(
      consume: (Int, NumberedFamily, Array[Byte], Array[Byte]) => Unit): Unit = at(version, steps.flatMap(_._2)) { db =>
    begin
    for ((step, bins) <- steps) eachOf(db, bins)(consume(step, _, _, _))
  }

  /**
   * Calls `consume(family, key, value)` in the same order for each row of `bins`, which came to the partition with the step at
   * `epoch`. The rows are those of `version`, rebuilt from what the old owners had committed and the changes that the partition
   * has logged since. Snapshots that the partition made after the step aren't read.
   */
  def foreachRowSince(epoch: Long, version: Long, bins: Seq[Int])(
      consume: (NumberedFamily, Array[Byte], Array[Byte]) => Unit): Unit = {
    Faults.at(point, source.partitionId)
    val empty = privateCopy(None)
    try {
      empty.loadAt(0, None, readOnly = false, loadEmpty = true)
      empty.inStoredForm {
        BinRecovery.adopt(empty, source, routing, arguments, bins, version, ownSnapshotsUpTo = epoch): Unit
        eachOf(empty, bins)(consume)
      }
    } finally empty.close()
  }

  private def eachOf(db: BinKeyedRocksDB, bins: Seq[Int])(consume: (NumberedFamily, Array[Byte], Array[Byte]) => Unit): Unit = {
    val native = RocksDBFields.native(db)
    for (family <- ColumnFamily.numbered(db, arguments.useColumnFamilies))
      family.foreachRow(native, native.getDefaultColumnFamily, bins)((key, value) => consume(family, family.keyIn(key), value))
  }

  /**
   * Opens a private database with `bins` as of `version`, which the caller closes. May be called on any thread.
   *
   * @param id id of the version under checkpoint format 2
   */
  def openAt(version: Long, id: Option[String], bins: Set[Int]): BinKeyedRocksDB = {
    Faults.at(point, source.partitionId)
    // The second attempt reads everything. The first one may have failed for a passing reason, or because a list of files wasn't
    // understood.
    try open(version, id, Some(bins))
    catch {
      case NonFatal(first) =>
        logWarning(s"version $version of $source could not be read in part; it is read as a whole", first)
        try open(version, id, None)
        catch {
          case NonFatal(e) =>
            e.addSuppressed(first)
            throw e
        }
    }
  }

  private def open(version: Long, id: Option[String], wanted: Option[Set[Int]]): BinKeyedRocksDB = {
    val opened = privateCopy(wanted)
    try {
      opened.loadAt(version, id, readOnly = true, loadEmpty = false)
      opened
    } catch {
      case e: Throwable =>
        opened.close()
        throw e
    }
  }

  private def privateCopy(wanted: Option[Set[Int]]): PrivateRocksDB = new PrivateRocksDB(source, routing,
    arguments.inPrivate(s"binshift-adopt-op${source.operatorId}-part${source.partitionId}")
      .copy(dfsRootDir = source.storeCheckpointLocation().toString, partitionId = source.partitionId),
    wanted)

  private def at(version: Long, bins: Seq[Int])(body: BinKeyedRocksDB => Unit): Unit = {
    val opened = openAt(version, idAt(version), bins.toSet)
    try opened.inStoredForm(body(opened))
    finally opened.close()
  }

  private def idAt(version: Long): Option[String] = CommittedChanges.idOf(source, version, routing, arguments)
}
