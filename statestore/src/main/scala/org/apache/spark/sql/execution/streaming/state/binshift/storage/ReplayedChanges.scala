package org.apache.spark.sql.execution.streaming.state.binshift.storage

import java.io.{InputStream, OutputStream}

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{FSDataInputStream, FSInputStream, Path}

import org.apache.spark.io.CompressionCodec
import org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager
import org.apache.spark.sql.execution.streaming.state.{LineageItem, RecordType, StateStoreChangelogReader}
import org.apache.spark.sql.execution.streaming.state.binshift.keys.{ColumnFamily, NumberedFamily}
import org.apache.spark.sql.execution.streaming.state.binshift.statistics.RowCounts

/**
 * The records of a changelog that a replay leaves to Spark, which counts what they add. The replay begins with the first record, so it
 * doesn't begin at all if only the lineage is read.
 *
 * Relies on Spark: a reader opens its file when it is created, which isn't needed here, and reads it only in `getNext` and
 * `lineage`. A replay applies each record before it asks for the next.
 *
 * @param dir the directory of the changelog
 */
private final class ReplayedChanges(
    changes: StateStoreChangelogReader, replay: BinnedFileManager.Replay, db: BinKeyedRocksDB, dir: Path,
    hadoopConf: Configuration)
  extends StateStoreChangelogReader(new NoFiles(dir, hadoopConf), dir, AsItIs) {

  private var hasBegun = false
  /** The record that Spark got last, and the number of rows before it. */
  private var last = Option.empty[(RecordType.Value, Array[Byte], RowCounts)]

  override lazy val lineage: Array[LineageItem] = changes.lineage

  override def version: Short = changes.version

  override def getNext(): (RecordType.Value, Array[Byte], Array[Byte]) = {
    try {
      last.foreach { case (kind, logged, before) => db.countSince(before, binOf(RowForm.keyOf(kind, logged, db.conf))) }
      last = None
      if (!hasBegun) {
        hasBegun = true
        replay.begin()
      }
      changes.find { case (kind, key, value) => replay.keeps(kind, key, value) } match {
        case Some(record) =>
          last = Some((record._1, record._2, RocksDBFields.rows(db)))
          record
        case None =>
          replay.end()
          finished = true
          null
      }
    } catch {
      case e: Throwable =>
        replay.fail()
        throw e
    }
  }

  private lazy val families = ColumnFamily.numbered(db, db.hasFamilies)

  private def binOf(native: Array[Byte]): Int = NumberedFamily.of(native, families).binOf(native)

  override protected def close(): Unit = {
    changes.closeIfNeeded()
    super.close()
  }
}

/** Pretends that each file is empty, and opens none. */
private final class NoFiles(dir: Path, hadoopConf: Configuration)
  extends FileSystemBasedCheckpointFileManager(dir, hadoopConf) {

  override def open(path: Path): FSDataInputStream = new FSDataInputStream(new FSInputStream {
    override def read(): Int = -1
    override def seek(to: Long): Unit = ()
    override def getPos: Long = 0
    override def seekToNewSource(to: Long): Boolean = false
  })
}

private object AsItIs extends CompressionCodec {
  override def compressedOutputStream(out: OutputStream): OutputStream = out
  override def compressedInputStream(in: InputStream): InputStream = in
}
