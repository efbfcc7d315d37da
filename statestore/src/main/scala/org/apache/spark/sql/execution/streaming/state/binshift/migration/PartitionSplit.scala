package org.apache.spark.sql.execution.streaming.state.binshift.migration

import java.nio.channels.ClosedByInterruptException

import scala.util.control.NonFatal

import org.apache.spark.TaskKilledException
import org.apache.spark.internal.Logging
import org.apache.spark.sql.execution.streaming.state.StateStoreId
import org.apache.spark.sql.execution.streaming.state.binshift.{Faults, Trace}
import org.apache.spark.sql.execution.streaming.state.binshift.keys.ColumnFamily
import org.apache.spark.sql.execution.streaming.state.binshift.routing.{BinSwitch, EpochRouting}
import org.apache.spark.sql.execution.streaming.state.binshift.shipping.PartitionShipping
import org.apache.spark.sql.execution.streaming.state.binshift.storage._

/**
 * Starts an empty store with all files of an old owner of its bins, and drops the bins that belong to others. So no row has to be
 * read, however many there are.
 *
 * The files come from the old owner's database if that is on this executor, or from a snapshot in the checkpoint ([[BinRecovery]]).
 *
 * @param release   drops bins
 * @param beginWith replaces the loaded version, which is empty, with files
 * @param beginAnew loads that version again
 */
private[migration] final class PartitionSplit(
    db: BinKeyedRocksDB, store: StateStoreId, routing: EpochRouting, shipping: PartitionShipping,
    release: (Seq[Int], Int => Boolean) => Unit, beginWith: WholeFiles => Unit,
    beginAnew: () => Unit) extends Logging {

  /**
   * Starts the store with the files that an old owner on this executor has at `version`, if the order says so. Returns the old
   * owner; if it returns `None`, nothing has changed.
   */
  def begin(version: Long, switch: BinSwitch): Option[(Int, SwitchStats)] = for {
    (source, bins) <- switch.arriving.find { case (source, bins) =>
      mayBegin(version, switch) && shipping.isSplit(version, source, bins)
    }
    stats <- unlessItFails(source)(shipping.split(version, source, bins).flatMap { files =>
      val bytes = files.bytes
      Option.when(isBegun(version, files, bins)) {
        if (Trace.isOn) Trace("arrived", store, "version" -> version, "from" -> source, "way" -> "split", "here" -> true,
          "bins" -> Trace.ranges(bins))
        SwitchStats(binsShipped = bins.size, bytesAdopted = bytes, isSplit = true)
      }
    })
  } yield (source, stats)

  /** True if the store is empty before the switch, and can be loaded again, because it was opened at an earlier epoch. */
  def mayBegin(version: Long, switch: BinSwitch): Boolean =
    !switch.isNew && switch.leaving.isEmpty && !routing.at(version).now.binsOf(store.partitionId).exists(switch.staying)

  /** Starts the store with the files of a snapshot of `source`, of which `bins` stay. If it returns false, nothing has changed. */
  def isBegunWith(version: Long, source: Int, files: WholeFiles, bins: Seq[Int]): Boolean =
    unlessItFails(source)(Option.when(isBegun(version, files, bins))(())).isDefined

  /** Runs `begin`. Returns `None` if that fails, or if there is nothing to begin with. */
  private def unlessItFails[T](source: Int)(begin: => Option[T]): Option[T] =
    try {
      val begun = begin
      if (begun.isDefined) Faults.at("split.done", store.partitionId)
      begun
    } catch {
      case e @ (_: TaskKilledException | _: ClosedByInterruptException | _: InterruptedException) => throw e
      case NonFatal(e) =>
        logWarning(s"$store could not begin with the files of partition $source; its bins are moved in another way", e)
        beginAnew()
        None
    }

  /** Returns false if families have other numbers in the files. */
  private def isBegun(version: Long, files: WholeFiles, bins: Seq[Int]): Boolean = {
    val families = ColumnFamily.numbered(db, db.hasFamilies)
    val isAlike = families.forall(files.families.contains)
    if (isAlike) {
      Faults.at("split.begin", store.partitionId)
      beginWith(files)
      Faults.at("split.begun", store.partitionId)
      // A recovery would number them in another order.
      if (files.families.size > families.size) RocksDBFields.forceSnapshot(db)
      val mine = bins.toSet
      release((0 until routing.at(version).now.bins).filterNot(mine), !mine(_))
    }
    isAlike
  }
}
