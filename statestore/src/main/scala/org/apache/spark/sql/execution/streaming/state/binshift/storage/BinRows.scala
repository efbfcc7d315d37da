package org.apache.spark.sql.execution.streaming.state.binshift.storage

import java.io.File
import java.nio.channels.ClosedByInterruptException

import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal

import org.rocksdb.{IngestExternalFileOptions, RocksDB => NativeRocksDB, WriteOptions}

import org.apache.spark.TaskKilledException
import org.apache.spark.sql.execution.streaming.state.binshift.Faults
import org.apache.spark.sql.execution.streaming.state.binshift.keys.{ColumnFamily, NumberedFamily}
import org.apache.spark.sql.execution.streaming.state.binshift.statistics.RowsByBin

/**
 * Removes and adds whole bins of a loaded database: as ranges of keys, and as files, which costs next to nothing per row. In families
 * that are read in order, the rows of a bin are scattered among those of others, so these families have to be scanned.
 *
 * Keys are in their stored form, and no changelog is open. Used by the thread that has the store.
 */
private[binshift] final class BinRows(db: BinKeyedRocksDB, useColumnFamilies: Boolean) {
  /**
   * Drops `bins` from all families.
   *
   * @param isEmpty other bins that have no rows here, which ranges may include
   */
  def remove(bins: Seq[Int], isEmpty: Int => Boolean): Unit = if (bins.nonEmpty) {
    val (ordered, others) = families.partition(_.family.isReadInOrder)
    writing { options =>
      dropRanges(others, bins, isEmpty, options)
      ordered.foreach(removeEach(_, bins, options))
    }
    db.dropRows(bins)
  }

  /**
   * Drops `bins` from families in which they are ranges. Their rows in other families stay, but don't count any more.
   *
   * @param isEmpty other bins that have no rows here, which ranges may include
   */
  def dropRanges(bins: Seq[Int], isEmpty: Int => Boolean): Unit = {
    writing(dropRanges(families.filterNot(_.family.isReadInOrder), bins, isEmpty, _))
    db.dropRows(bins)
  }

  /**
   * Runs `bring`, which brings rows of `bins`. There must be none before, because the bins belong to another partition, or were
   * dropped. If it fails, its rows are dropped again, and `otherwise` is run. If the task is killed, neither is done.
   */
  def bringOrElse[T](bins: Seq[Int])(bring: => T)(otherwise: Throwable => T): T =
    try bring
    catch {
      case e @ (_: TaskKilledException | _: ClosedByInterruptException) => throw e
      case NonFatal(e) =>
        remove(bins, _ => false)
        otherwise(e)
    }

  /** Ingests files, which moves them. Files of one group don't overlap, and later groups win over earlier ones. */
  def takeIn(groups: Seq[Seq[File]], rows: RowsByBin): Unit = {
    ingest(groups)
    db.addRows(rows)
  }

  private def native: NativeRocksDB = RocksDBFields.native(db)

  private def families: Seq[NumberedFamily] = ColumnFamily.numbered(db, useColumnFamilies)

  private def dropRanges(
      ranged: Seq[NumberedFamily], bins: Seq[Int], isEmpty: Int => Boolean, options: WriteOptions): Unit =
    ranged.foreach(_.ranges(bins, isEmpty).foreach { case (from, to) => native.deleteRange(options, from, to) })

  private def writing[T](write: WriteOptions => T): T = {
    val options = new WriteOptions().setDisableWAL(true)
    try write(options)
    finally options.close()
  }

  private def removeEach(family: NumberedFamily, bins: Seq[Int], options: WriteOptions): Unit = {
    Faults.at("switch.scan")
    family.foreachRow(native, native.getDefaultColumnFamily, bins)((key, _) => native.delete(options, key))
  }

  private def ingest(groups: Seq[Seq[File]]): Unit = {
    val options = new IngestExternalFileOptions().setMoveFiles(true)
    try groups.filter(_.nonEmpty).foreach(files => native.ingestExternalFile(files.map(_.getPath).asJava, options))
    finally options.close()
  }
}
