package org.apache.spark.sql.execution.streaming.state.binshift.migration

import java.io.File
import java.nio.channels.ClosedByInterruptException
import java.util.UUID

import scala.util.control.NonFatal

import org.apache.spark.TaskKilledException
import org.apache.spark.internal.Logging
import org.apache.spark.sql.execution.streaming.state.StateStoreId
import org.apache.spark.sql.execution.streaming.state.binshift.{Faults, Trace}
import org.apache.spark.sql.execution.streaming.state.binshift.keys.{ColumnFamily, NumberedFamily}
import org.apache.spark.sql.execution.streaming.state.binshift.recovery.CheckpointedBins
import org.apache.spark.sql.execution.streaming.state.binshift.routing.{BinSwitch, EpochRouting}
import org.apache.spark.sql.execution.streaming.state.binshift.shipping.{PartitionShipping, SplitOffer}
import org.apache.spark.sql.execution.streaming.state.binshift.storage._
import org.apache.spark.util.Utils

/**
 * Starts an empty store with all files of an old owner of its bins, and drops the bins that belong to others. So no row has to be
 * read, however many there are.
 *
 * The files come from the old owner's database if that is on this executor, and otherwise from its checkpoint.
 *
 * @param release   drops bins
 * @param beginWith replaces the loaded version, which is empty, with files
 * @param beginAnew loads that version again
 */
private[migration] final class PartitionSplit(
    db: BinKeyedRocksDB, store: StateStoreId, routing: EpochRouting, shipping: PartitionShipping, arguments: RocksDBArguments,
    release: (Seq[Int], Int => Boolean) => Unit, beginWith: BinnedFileManager.Beginning => Unit,
    beginAnew: () => Unit) extends Logging {
  import PartitionSplit._

  /**
   * Starts the store with the files of an old owner at `version`, if the order says so. If it returns `None`, nothing has
   * changed.
   */
  def begin(version: Long, switch: BinSwitch): Option[Begun] =
    // The partition must have been opened at an earlier epoch, so that the empty version can be loaded again.
    switch.arriving.find { case (source, bins) => !switch.isNew && shipping.isSplit(version, source, bins) }
      .flatMap { case (source, bins) =>
        unlessItFails(source) {
          shipping.split(version, source, bins).map(beginFrom(_, version, source, bins, isHere = true))
        }.getOrElse(unlessItFails(source)(Some(fromCheckpoint(version, source, bins))).flatten)
      }

  /**
   * Runs `begin`. Returns `None` if that fails or there is nothing to begin with; the inner option is empty if the files don't
   * fit.
   */
  private def unlessItFails(source: Int)(begin: => Option[Option[Begun]]): Option[Option[Begun]] =
    try {
      val begun = begin
      if (begun.exists(_.isDefined)) Faults.at("split.done", store.partitionId)
      begun
    } catch {
      case e @ (_: TaskKilledException | _: ClosedByInterruptException | _: InterruptedException) => throw e
      case NonFatal(e) =>
        logWarning(s"$store could not begin with the files of partition $source; its bins are moved in another way", e)
        beginAnew()
        None
    }

  private def fromCheckpoint(version: Long, source: Int, bins: Seq[Int]): Option[Begun] = {
    val dir = new File(db.localRootDir.getParentFile, s"binshift-split-${UUID.randomUUID()}")
    try {
      Utils.createDirectory(dir)
      val files = new CheckpointedBins(store.copy(partitionId = source), routing, arguments)
        .link(version, bins, new File(dir, "linked"))
      beginFrom(new Fetched(files), version, source, bins, isHere = false)
    } finally Utils.deleteRecursively(dir)
  }

  private def beginFrom(offer: SplitOffer, version: Long, source: Int, bins: Seq[Int], isHere: Boolean): Option[Begun] =
    Option.when(isAlike(offer.files.families)) {
      val bytes = offer.files.bytes
      Faults.at("split.begin", store.partitionId)
      beginWith(offer)
      Faults.at("split.begun", store.partitionId)
      val mine = bins.toSet
      if (Trace.isOn) Trace("arrived", store, "version" -> version, "from" -> source, "way" -> "split", "here" -> isHere,
        "bins" -> Trace.ranges(bins))
      release((0 until routing.at(version).now.bins).filterNot(mine), !mine(_))
      Begun(source,
        SwitchStats(
          binsShipped = if (isHere) bins.size else 0, binsFromCheckpoint = if (isHere) 0 else bins.size, bytesAdopted = bytes,
          isSplit = true))
    }

  /** True if families have the same numbers in both stores. */
  private def isAlike(theirs: Seq[NumberedFamily]): Boolean =
    ColumnFamily.numbered(db, arguments.useColumnFamilies).forall(theirs.contains)
}

private[migration] object PartitionSplit {
  /** @param source the partition with whose files the store began */
  final case class Begun(source: Int, stats: SwitchStats)

  /** Files from a checkpoint. */
  private final class Fetched(override val files: WholeFiles) extends SplitOffer {
    override def into(dir: File): Unit = files.into(dir)
  }
}
