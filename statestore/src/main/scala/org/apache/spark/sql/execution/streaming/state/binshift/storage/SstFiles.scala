package org.apache.spark.sql.execution.streaming.state.binshift.storage

import java.io.File

import org.rocksdb.{BlockBasedTableConfig, BloomFilter, CompressionType, EnvOptions, Options, SstFileWriter}

import org.apache.spark.sql.execution.streaming.state.RocksDBConf

/** A file that RocksDB can ingest as a whole. */
private[binshift] final case class SstFile(file: File, bytes: Long)

/**
 * Writes rows that come in the order of their keys into files, a file per part.
 *
 * Not thread-safe. Closing releases native memory; files that were finished stay.
 */
private[binshift] final class SstFiles(dir: File, conf: RocksDBConf) extends AutoCloseable {
  private val bloom = new BloomFilter()
  private val table = new BlockBasedTableConfig().setFilterPolicy(bloom)
    .setBlockSize(conf.blockSizeKB * 1024).setFormatVersion(conf.formatVersion)
  private val options = new Options().setTableFormatConfig(table)
    .setCompressionType(CompressionType.getCompressionType(conf.compression))
  private val env = new EnvOptions()
  private var writer: Option[SstFileWriter] = None
  private var file: File = _
  private var number = 0

  def put(key: Array[Byte], value: Array[Byte]): Unit = current().put(key, value)

  def delete(key: Array[Byte]): Unit = current().delete(key)

  /** Ends the file that is being written, if any. */
  def finish(): Option[SstFile] = writer.map { w =>
    w.finish()
    w.close()
    writer = None
    SstFile(file, file.length)
  }

  /** Drops the file that is being written, if any. */
  def abandon(): Unit = writer.foreach { w =>
    w.close()
    writer = None
    file.delete()
  }

  override def close(): Unit = {
    abandon()
    Seq(options, env, bloom).foreach(_.close())
  }

  private def current(): SstFileWriter = writer.getOrElse {
    number += 1
    file = new File(dir, s"$number.sst")
    val made = new SstFileWriter(env, options)
    writer = Some(made)
    made.open(file.getPath)
    made
  }
}
