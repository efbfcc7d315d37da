package org.apache.spark.sql.execution.streaming.state.binshift.storage

import java.io.{InputStream, OutputStream}

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{FSDataInputStream, FSInputStream, Path}

import org.apache.spark.io.CompressionCodec
import org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager
import org.apache.spark.sql.execution.streaming.state.{LineageItem, RecordType, StateStoreChangelogReader}

/**
 * The records of a changelog that a replay leaves to Spark. The replay begins with the first record, so it doesn't begin at all
 * if only the lineage is read.
 *
 * Relies on Spark: a reader opens its file when it is created, which isn't needed here, and reads it only in `getNext` and
 * `lineage`.
 *
 * @param dir the directory of the changelog
 */
private final class ReplayedChanges(
    changes: StateStoreChangelogReader, replay: BinnedFileManager.Replay, dir: Path, hadoopConf: Configuration)
  extends StateStoreChangelogReader(new NoFiles(dir, hadoopConf), dir, AsItIs) {

  private var hasBegun = false

  override lazy val lineage: Array[LineageItem] = changes.lineage

  override def version: Short = changes.version

  override def getNext(): (RecordType.Value, Array[Byte], Array[Byte]) = {
    try {
      if (!hasBegun) {
        hasBegun = true
        replay.begin()
      }
      changes.find { case (kind, key, value) => replay.keeps(kind, key, value) }.getOrElse {
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
