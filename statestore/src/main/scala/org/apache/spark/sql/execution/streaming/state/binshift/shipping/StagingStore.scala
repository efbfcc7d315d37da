package org.apache.spark.sql.execution.streaming.state.binshift.shipping

import java.io.File
import java.nio.file.Files

import scala.jdk.CollectionConverters._

import org.rocksdb._

import org.apache.spark.sql.execution.streaming.state.binshift.keys.NumberedFamily
import org.apache.spark.sql.execution.streaming.state.binshift.storage.OpenDatabases
import org.apache.spark.util.Utils

/**
 * A scratch database for a store that is about to get bins. For a key of these bins, it knows whether the row exists, and its
 * value, so that changes can be counted and merged. It also collects the changes that were made since the copies, in the order of
 * keys, and on disk because there may be many.
 *
 * It is opened with the first change. Keys are native keys of the store that gets the bins. Not thread-safe.
 *
 * @param dir    its own directory, which is created here and deleted when this is closed
 * @param copied files of copied rows, which also stay in their place under their own names
 */
private[binshift] final class StagingStore(dir: File, copied: Seq[File]) extends AutoCloseable {
  Files.createDirectories(dir.toPath)
  private val links =
    try copied.map(file => Files.createLink(new File(dir, s"${file.getName}.link").toPath, file.toPath).toString)
    catch {
      case e: Throwable =>
        Utils.deleteRecursively(dir)
        throw e
    }
  private var opened = Option.empty[StagingDatabase]

  def get(key: Array[Byte]): Option[Array[Byte]] = database.get(key)

  /**
   * Changes a row.
   *
   * @param value `None` to delete the row
   * @param layer a layer that also gets the change
   */
  def change(key: Array[Byte], value: Option[Array[Byte]], layer: Option[StagingLayer]): Unit = {
    val change = value.fold(Array(StagingDatabase.Deleted))(StagingDatabase.Present +: _)
    database.change(key, change)
    layer.foreach(_.change(key, change))
  }

  /** True if anything has changed. */
  def isOpen: Boolean = opened.nonEmpty

  /** Creates a layer that collects those later changes that are put into it. It has to be closed before the store. */
  def newLayer(): StagingLayer = database.newLayer()

  /** Calls `put` or `delete` for each changed key of `bins` in a family, in the order of keys. */
  def foreachChange(family: NumberedFamily, bins: Seq[Int])(
      put: (Array[Byte], Array[Byte]) => Unit, delete: Array[Byte] => Unit): Unit =
    opened.foreach(_.foreachChange(family, bins)(put, delete))

  override def close(): Unit = {
    opened.foreach(_.close())
    opened = None
    Utils.deleteRecursively(dir)
  }

  private def database: StagingDatabase = opened.getOrElse {
    val made = new StagingDatabase(new File(dir, "staging"), links)
    opened = Some(made)
    made
  }
}

/** Some of the changes in a staging store, from the creation of this layer on. */
private[shipping] trait StagingLayer extends AutoCloseable {
  def isEmpty: Boolean

  def change(key: Array[Byte], change: Array[Byte]): Unit

  /** Like the store's method. */
  def foreachChange(family: NumberedFamily, bins: Seq[Int])(
      put: (Array[Byte], Array[Byte]) => Unit, delete: Array[Byte] => Unit): Unit
}

/** @param links links to the files of copied rows, which the database takes over */
private final class StagingDatabase(dir: File, links: Seq[String]) extends AutoCloseable {
  import StagingDatabase._

  private val options = new DBOptions().setCreateIfMissing(true).setCreateMissingColumnFamilies(true)
    .setWriteBufferManager(Buffers).setMaxOpenFiles(MaxOpenFiles).setAvoidFlushDuringShutdown(true)
  private val bloom = new BloomFilter()
  private val families = new ColumnFamilyOptions().setWriteBufferSize(4L << 20).setTableFormatConfig(
    new BlockBasedTableConfig().setFilterPolicy(bloom).setBlockCache(Cache).setCacheIndexAndFilterBlocks(true))
  private val write = new WriteOptions().setDisableWAL(true)
  private val handles = new java.util.ArrayList[ColumnFamilyHandle]()
  private val db =
    try RocksDB.open(options, dir.getPath,
        Seq(RocksDB.DEFAULT_COLUMN_FAMILY, "changes".getBytes).map(new ColumnFamilyDescriptor(_, families)).asJava,
        handles)
    catch {
      case e: RocksDBException =>
        closeOptions()
        throw e
    }
  private var layers = 0
  private val copied = handles.get(0)
  private val changed = handles.get(1)
  try {
    OpenDatabases.add(db)
    links.foreach(ingest)
  } catch {
    case e: Throwable =>
      close()
      throw e
  }

  def get(key: Array[Byte]): Option[Array[Byte]] = Option(db.get(changed, key)) match {
    case Some(change) if change(0) == Deleted => None
    case Some(change) => Some(java.util.Arrays.copyOfRange(change, 1, change.length))
    case None => Option(db.get(copied, key))
  }

  def change(key: Array[Byte], change: Array[Byte]): Unit = db.put(changed, write, key, change)

  def foreachChange(family: NumberedFamily, bins: Seq[Int])(
      put: (Array[Byte], Array[Byte]) => Unit, delete: Array[Byte] => Unit): Unit =
    foreachChangeIn(changed, family, bins)(put, delete)

  def newLayer(): StagingLayer = new StagingLayer {
    private lazy val handle = {
      layers += 1
      db.createColumnFamily(new ColumnFamilyDescriptor(s"layer-$layers".getBytes, families))
    }
    private var hasAny = false

    override def isEmpty: Boolean = !hasAny

    override def change(key: Array[Byte], change: Array[Byte]): Unit = {
      // Set first, because the family exists even if the rest fails.
      hasAny = true
      db.put(handle, write, key, change)
    }

    override def foreachChange(family: NumberedFamily, bins: Seq[Int])(
        put: (Array[Byte], Array[Byte]) => Unit, delete: Array[Byte] => Unit): Unit =
      if (hasAny) foreachChangeIn(handle, family, bins)(put, delete)

    override def close(): Unit = if (hasAny) {
      hasAny = false
      db.dropColumnFamily(handle)
      handle.close()
    }
  }

  private def foreachChangeIn(in: ColumnFamilyHandle, family: NumberedFamily, bins: Seq[Int])(
      put: (Array[Byte], Array[Byte]) => Unit, delete: Array[Byte] => Unit): Unit =
    family.foreachRow(db, in, bins) { (key, change) =>
      if (change(0) == Deleted) delete(key)
      else put(key, java.util.Arrays.copyOfRange(change, 1, change.length))
    }

  override def close(): Unit = {
    handles.forEach(_.close())
    db.close()
    closeOptions()
  }

  private def ingest(link: String): Unit = {
    val ingest = new IngestExternalFileOptions().setMoveFiles(true)
    try db.ingestExternalFile(copied, Seq(link).asJava, ingest)
    finally ingest.close()
  }

  private def closeOptions(): Unit = Seq(options, families, bloom, write).foreach(_.close())
}

private object StagingDatabase {
  val Deleted: Byte = 0
  val Present: Byte = 1

  /** Limits the open files of each database, which opens a file again when it needs it. */
  private val MaxOpenFiles = 64

  RocksDB.loadLibrary()
  /**
   * Memory for the blocks, indexes, filters and changes of all these databases of an executor. They share it, because there is a
   * database for each pair of stores between which bins move.
   */
  private[shipping] val Cache = new LRUCache(96L << 20)
  private val Buffers = new WriteBufferManager(64L << 20, Cache)
}
