package org.apache.spark.sql.execution.streaming.state.binshift

import java.io.File

import scala.collection.mutable
import scala.util.control.NonFatal

import org.rocksdb.{Checkpoint, Options, RocksDB => NativeRocksDB}

import org.apache.spark.internal.Logging
import org.apache.spark.sql.execution.streaming.state.{RocksDB, StateStoreId}
import org.apache.spark.storage.BlockId
import org.apache.spark.util.Utils

/**
 * Sends the bins that leave a store, as they are at the version that was just committed.
 *
 * Made on the task's thread right after the commit: hard links to the database's files keep the
 * version, whatever the database does then. The rows are read and sent in the background, those of
 * earlier steps first. One per order and store.
 *
 * @param attempt which commit the rows are of, see [[CommittedFile]]
 */
private[binshift] final class Exporter(
    store: StateStoreId,
    order: ShippingOrder,
    attempt: String,
    conf: ShippingConf,
    db: RocksDB,
    useColumnFamilies: Boolean) extends Logging {

  private val leaving = order.leaving(store.partitionId)
  private val families = ColumnFamily.numbered(db, useColumnFamilies)
  private val dir = new File(db.localRootDir.getParentFile, s"binshift-export-${java.util.UUID.randomUUID()}")
  private val inFlight = mutable.Queue.empty[(BlockId, Long)]
  private var inFlightBytes = 0L

  @volatile private var isCancelled = false
  @volatile private var counts: Option[Map[Int, RowCounts]] = None

  /** Rows sent, by step; `None` until all are. */
  def rowsByStep: Option[Map[Int, RowCounts]] = counts

  link()
  private val job = ShippingThreads.exports.submit((() => run()): Runnable)

  /** Stops sending, without waiting; what was sent goes with the order's broadcast. */
  def cancel(): Unit = {
    isCancelled = true
    if (job.cancel(false)) Utils.deleteRecursively(dir)
  }

  private def link(): Unit = {
    val checkpoint = Checkpoint.create(RocksDBFields.native(db))
    try checkpoint.createCheckpoint(dir.getPath) finally checkpoint.close()
  }

  private def run(): Unit = {
    try {
      Faults.at("export.start", store.partitionId)
      val options = new Options().setMergeOperator(RocksDBFields.mergeOperator(db.conf))
      val snapshot = NativeRocksDB.openReadOnly(options, dir.getPath)
      try counts = Some(send(snapshot)) finally {
        snapshot.close()
        options.close()
      }
    } catch {
      case _: InterruptedException | _: Cancelled => logInfo(s"$store: order ${order.id} is cancelled")
      case NonFatal(e) =>
        logWarning(s"$store could not send its bins for order ${order.id}; their new owners read them from " +
          "the checkpoint", e)
    } finally {
      Utils.deleteRecursively(dir)
    }
  }

  private def send(snapshot: NativeRocksDB): Map[Int, RowCounts] = {
    val rows = mutable.Map.empty[Int, RowCounts].withDefaultValue(RowCounts.Zero)
    val writers = leaving.keys.map { target =>
      target -> new ShipmentFormat.Writer(order.base, attempt, families, conf.chunkBytes, publish(target, _, _))
    }.toMap
    for {
      step <- leaving.values.flatten.map(_.step).toSeq.distinct.sorted
      (target, all) <- leaving.toSeq.sortBy(_._1)
      bins = all.filter(_.step == step).map(_.bin) if bins.nonEmpty
      (family, position) <- families.zipWithIndex
    } {
      var n = 0L
      family.foreachRow(snapshot, snapshot.getDefaultColumnFamily, bins) { (key, value) =>
        if (isCancelled) throw new Cancelled
        writers(target).write(step, position, java.util.Arrays.copyOfRange(key, family.prefix.length, key.length), value)
        n += 1
      }
      rows(step) += (if (family.family.isInternal) RowCounts(0, n) else RowCounts(n, 0))
    }
    writers.values.foreach(_.close())
    rows.toMap
  }

  private def publish(target: Int, index: Int, chunk: Array[Byte]): Unit = {
    ShippingThreads.pace(chunk.length, conf.maxBytesPerSecond)
    awaitRoom(chunk.length)
    val id = ShipmentFormat.blockId(
      order.broadcast, store.operatorId, store.storeName, store.partitionId, target, index)
    Faults.at("export.chunk", store.partitionId)
    Shipments.put(id, Faults.change("export.chunk", chunk))
    inFlight += id -> chunk.length.toLong
    inFlightBytes += chunk.length
  }

  /** What was sent and nobody has fetched is bounded; receivers free what they have fetched. */
  private def awaitRoom(bytes: Long): Unit = {
    while (inFlight.nonEmpty && inFlightBytes + bytes > conf.maxBytesInFlight) {
      inFlight.dequeueAll { case (id, n) =>
        val isGone = !Shipments.isHere(id)
        if (isGone) inFlightBytes -= n
        isGone
      }
      if (isCancelled) throw new Cancelled
      if (inFlightBytes + bytes > conf.maxBytesInFlight) Thread.sleep(20)
    }
  }
}

private final class Cancelled extends RuntimeException
