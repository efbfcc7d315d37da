package org.apache.spark.sql.execution.streaming.state.binshift.storage

import java.io.File
import java.nio.channels.ClosedByInterruptException

import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal

import org.rocksdb.{IngestExternalFileOptions, WriteOptions}

import org.apache.spark.TaskKilledException
import org.apache.spark.sql.execution.streaming.state.RocksDB
import org.apache.spark.sql.execution.streaming.state.binshift.keys.ColumnFamily
import org.apache.spark.sql.execution.streaming.state.binshift.statistics.RowCounts

/**
 * Whole bins of a loaded database: they go as ranges of keys and come as files, which costs next to nothing per row.
 *
 * Keys are in their stored form, and no changelog is open. Used by the thread that has the store.
 */
private[binshift] final class BinRows(db: RocksDB, useColumnFamilies: Boolean) {

  /** The rows of `bins`, for which they are looked through; nothing if rows are not counted at all. */
  def count(bins: Seq[Int]): RowCounts = if (!db.conf.trackTotalNumberOfRows || bins.isEmpty) RowCounts.Zero
  else {
    val native = RocksDBFields.native(db)
    ColumnFamily.numbered(db, useColumnFamilies).map { family =>
      var rows = 0L
      family.foreachRow(native, native.getDefaultColumnFamily, bins)((_, _) => rows += 1)
      if (family.family.isInternal) RowCounts(0, rows) else RowCounts(rows, 0)
    }.foldLeft(RowCounts.Zero)(_ + _)
  }

  /**
   * Drops `bins`.
   *
   * @param isEmpty other bins that have no rows here, which ranges may include
   * @param rows    what they have
   */
  def drop(bins: Seq[Int], isEmpty: Int => Boolean, rows: RowCounts): Unit = {
    val native = RocksDBFields.native(db)
    val before = RocksDBFields.rows(db)
    val options = new WriteOptions().setDisableWAL(true)
    try ColumnFamily.numbered(db, useColumnFamilies).foreach { family =>
        if (ColumnFamily.isReadInOrder(family.family.name)) {
          family.foreachRow(native, native.getDefaultColumnFamily, bins)((key, _) =>
            db.remove(family.keyIn(key), family.family.name))
        } else {
          family.ranges(bins, isEmpty).foreach { case (from, to) => native.deleteRange(options, from, to) }
        }
      }
    finally options.close()
    RocksDBFields.setRows(db, before - rows)
  }

  /**
   * Runs `bring`, which brings rows of `bins`, of which there is none: they are another partition's, or were dropped. If it
   * fails, there is none again, and `otherwise` is run. A task that is killed is not kept for that.
   */
  def bringOrElse[T](bins: Seq[Int])(bring: => T)(otherwise: Throwable => T): T = {
    val before = RocksDBFields.rows(db)
    try bring
    catch {
      case e @ (_: TaskKilledException | _: ClosedByInterruptException) => throw e
      case NonFatal(e) =>
        drop(bins, _ => false, RowCounts.Zero)
        RocksDBFields.setRows(db, before)
        otherwise(e)
    }
  }

  /** Takes files in, which are gone then; those of one group do not overlap, and later groups win over earlier ones. */
  def takeIn(groups: Seq[Seq[File]], rows: RowCounts): Unit = {
    val native = RocksDBFields.native(db)
    val before = RocksDBFields.rows(db)
    val options = new IngestExternalFileOptions().setMoveFiles(true)
    try groups.filter(_.nonEmpty).foreach(files => native.ingestExternalFile(files.map(_.getPath).asJava, options))
    finally options.close()
    RocksDBFields.setRows(db, before + rows)
  }
}
