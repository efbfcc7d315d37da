package org.apache.spark.sql.execution.streaming.state.binshift.shipping

import java.io.File
import java.nio.file.Files

import scala.jdk.CollectionConverters._

import org.rocksdb._

import org.apache.spark.sql.execution.streaming.state.binshift.keys.NumberedFamily
import org.apache.spark.util.Utils

/**
 * A scratch database beside a store that is about to get bins. It tells, for a key of those bins,
 * whether it exists and with which value, so that changes can be counted and merged; and it collects
 * the changes since the copies were made, in the order of keys and on disk, however many they are.
 *
 * Keys are native keys of the store that gets the bins. Not thread-safe.
 *
 * @param dir its directory, which is made here and goes when it is closed
 */
private[binshift] final class StagingStore(dir: File) extends AutoCloseable {
  Files.createDirectories(dir.toPath)
  private val options = new DBOptions().setCreateIfMissing(true).setCreateMissingColumnFamilies(true)
  private val bloom = new BloomFilter()
  private val families = new ColumnFamilyOptions().setWriteBufferSize(4L << 20)
    .setTableFormatConfig(new BlockBasedTableConfig().setFilterPolicy(bloom))
  private val write = new WriteOptions().setDisableWAL(true)
  private val handles = new java.util.ArrayList[ColumnFamilyHandle]()
  private val db =
    try RocksDB.open(options, new File(dir, "staging").getPath,
        Seq(RocksDB.DEFAULT_COLUMN_FAMILY, "changes".getBytes).map(new ColumnFamilyDescriptor(_, families)).asJava,
        handles)
    catch {
      case e: RocksDBException =>
        closeOptions()
        throw e
    }
  private val copied = handles.get(0)
  private val changed = handles.get(1)
  private var isChanged = false

  /** Takes in a file of rows as they were copied; the file stays, under its own name, too. */
  def addCopied(file: File): Unit = {
    val link = new File(dir, s"${file.getName}.link")
    Files.createLink(link.toPath, file.toPath)
    val ingest = new IngestExternalFileOptions().setMoveFiles(true)
    try db.ingestExternalFile(copied, Seq(link.getPath).asJava, ingest)
    finally ingest.close()
  }

  def get(key: Array[Byte]): Option[Array[Byte]] = Option(db.get(changed, key)) match {
    case Some(change) if change(0) == StagingStore.Deleted => None
    case Some(change) => Some(java.util.Arrays.copyOfRange(change, 1, change.length))
    case None => Option(db.get(copied, key))
  }

  def put(key: Array[Byte], value: Array[Byte]): Unit = change(key, StagingStore.Present +: value)

  def delete(key: Array[Byte]): Unit = change(key, Array(StagingStore.Deleted))

  /** Calls `put` or `delete` for each changed key of `bins` in a family, in the order of keys. */
  def foreachChange(family: NumberedFamily, bins: Seq[Int])(
      put: (Array[Byte], Array[Byte]) => Unit, delete: Array[Byte] => Unit): Unit =
    if (isChanged) family.foreachRow(db, changed, bins) { (key, change) =>
      if (change(0) == StagingStore.Deleted) delete(key)
      else put(key, java.util.Arrays.copyOfRange(change, 1, change.length))
    }

  override def close(): Unit = {
    handles.forEach(_.close())
    db.close()
    closeOptions()
    Utils.deleteRecursively(dir)
  }

  private def closeOptions(): Unit = Seq(options, families, bloom, write).foreach(_.close())

  private def change(key: Array[Byte], change: Array[Byte]): Unit = {
    isChanged = true
    db.put(changed, write, key, change)
  }
}

private object StagingStore {
  private val Deleted: Byte = 0
  private val Present: Byte = 1
}
