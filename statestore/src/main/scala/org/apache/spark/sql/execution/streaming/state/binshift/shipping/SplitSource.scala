package org.apache.spark.sql.execution.streaming.state.binshift.shipping

import java.io.File
import java.util.UUID
import java.util.concurrent.{CompletableFuture, ConcurrentHashMap, TimeUnit}

import scala.util.control.NonFatal

import org.apache.spark.internal.Logging
import org.apache.spark.sql.execution.streaming.state.StateStoreId
import org.apache.spark.sql.execution.streaming.state.binshift.Faults
import org.apache.spark.sql.execution.streaming.state.binshift.keys.ColumnFamily
import org.apache.spark.sql.execution.streaming.state.binshift.routing.ShippingOrder
import org.apache.spark.sql.execution.streaming.state.binshift.storage.{RocksDBFields, WholeFiles}
import org.apache.spark.util.Utils

/**
 * Offers all files of a store, as of the version that was just committed, to new partitions on this executor. Each of them begins
 * with the files and drops the bins that belong to others, so no row has to be read.
 *
 * It is created on the task's thread right after the commit. The files are linked in the background, like those of an
 * [[Exporter]].
 *
 * @param attempt identifies the commit of the files, see [[CommittedFile]]
 */
private[shipping] final class SplitSource(
    store: StateStoreId, order: ShippingOrder, attempt: String, db: ShippingStore, useColumnFamilies: Boolean)
  extends Logging {
  import SplitSource._

  private val leaving = order.splitsOf(store.partitionId)
  private val dir = new File(db.localRootDir.getParentFile, s"binshift-split-${UUID.randomUUID()}")
  private val linked = new File(dir, "linked")
  private val families = ColumnFamily.numbered(db, useColumnFamilies)
  private val rows = db.rowsOfBins.of(leaving.values.flatten)
  private var isOpen = true

  private val links = {
    val native = RocksDBFields.native(db)
    CompletableFuture.runAsync(() => link(native), ShippingThreads.links)
  }
  here.put(Key(order.broadcast, store), this)

  /** Returns when the database may change or be closed. Works on an interrupted thread, too. */
  def awaitLinks(): Unit = links.handle[Unit]((_, _) => ()).join()

  /** Ends the offer. */
  def close(): Unit = {
    awaitLinks()
    here.remove(Key(order.broadcast, store), this)
    synchronized {
      isOpen = false
      Utils.tryLogNonFatalError(Utils.deleteRecursively(dir))
    }
  }

  /** Called by the task of `target`. */
  private def offerTo(target: Int, committed: String, timeoutMs: Long): WholeFiles = {
    if (committed != attempt) throw new DamagedShipment("its files are of an attempt of the source's task that was not committed")
    links.get(timeoutMs, TimeUnit.MILLISECONDS)
    new WholeFiles(linked, families, rows.of(leaving(target))) {
      override def into(target: File): Unit = SplitSource.this.synchronized {
        if (!isOpen) throw new Cancelled
        super.into(target)
      }
    }
  }

  private def link(native: org.rocksdb.RocksDB): Unit =
    try {
      Faults.at("split.link", store.partitionId)
      Utils.createDirectory(dir)
      WholeFiles.link(native, linked)
    } catch {
      case NonFatal(e) =>
        logWarning(s"the files of $store could not be linked for order ${order.id}; its bins are read from the checkpoint", e)
        throw e
    }
}

private[shipping] object SplitSource {
  private final case class Key(broadcast: Long, store: StateStoreId)

  /** The sources on this executor. */
  private val here = new ConcurrentHashMap[Key, SplitSource]()

  /**
   * The files with which `target` may begin, if `store` is on this executor. Used by the target's task.
   *
   * @param committed returns the attempt of the source's task that was committed; evaluated only if the store is here
   * @throws java.util.concurrent.TimeoutException or another exception, if the store is here but can't offer its files
   */
  def offer(order: ShippingOrder, store: StateStoreId, target: Int, timeoutMs: Long)(committed: => String): Option[WholeFiles] =
    Option(here.get(Key(order.broadcast, store))).map(_.offerTo(target, committed, timeoutMs))
}
