package org.apache.spark.sql.execution.streaming.state.binshift

import java.io.File
import java.util.concurrent.atomic.AtomicBoolean

import scala.collection.mutable
import scala.util.control.NonFatal

import org.rocksdb.{Checkpoint, Options, RocksDB => NativeRocksDB}

import org.apache.spark.internal.Logging
import org.apache.spark.sql.execution.streaming.state.StateStoreId
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
    db: BinnedRocksDB,
    useColumnFamilies: Boolean) extends Logging {

  private val leaving = order.leaving(store.partitionId)
  /** Parts in the order in which they are sent: by step or, on demand, the bins touched most first. */
  private val parts = {
    val steps = leaving.values.flatten.map(_.step).toSeq.distinct
    if (order.isOnDemand) steps.sortBy(bin => (-db.touches(bin), bin)) else steps.sorted
  }
  private val families = ColumnFamily.numbered(db, useColumnFamilies)
  private val dir = new File(db.localRootDir.getParentFile, s"binshift-export-${java.util.UUID.randomUUID()}")
  private val inFlight = mutable.Queue.empty[Sent]

  @volatile private var isCancelled = false
  @volatile private var counts: Option[Map[Int, RowCounts]] = None

  /** Rows sent, by step; `None` until all are. */
  def rowsByStep: Option[Map[Int, RowCounts]] = counts

  private val marker = ShipmentFormat.markerId(order.broadcast, store)
  private val isStarted = new AtomicBoolean(false)
  /** Receivers that have stopped to fetch. */
  private val abandoned = mutable.Set.empty[Int]

  link()
  Shipments.put(marker, Array[Byte](1))
  private val job = ShippingThreads.exports.submit((() => run()): Runnable)

  /** Stops sending, without waiting; what was sent goes with the order's broadcast. */
  def cancel(): Unit = {
    isCancelled = true
    if (isStarted.compareAndSet(false, true)) {
      job.cancel(false)
      end()
    }
  }

  private def end(): Unit = {
    if (Shipments.isHere(marker)) Shipments.remove(marker)
    Utils.deleteRecursively(dir)
  }

  private def link(): Unit = {
    val checkpoint = Checkpoint.create(RocksDBFields.native(db))
    try checkpoint.createCheckpoint(dir.getPath) finally checkpoint.close()
  }

  private def run(): Unit = if (isStarted.compareAndSet(false, true)) {
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
      end()
    }
  }

  private def send(snapshot: NativeRocksDB): Map[Int, RowCounts] = {
    val rows = mutable.Map.empty[Int, RowCounts].withDefaultValue(RowCounts.Zero)
    val writers = leaving.keys.map { target =>
      target -> new ShipmentFormat.Writer(order.base, attempt, families, conf.chunkBytes, publish(target, _, _))
    }.toMap
    for {
      step <- parts
      (target, all) <- leaving.toSeq.sortBy(_._1)
      bins = all.filter(_.step == step).map(_.bin) if bins.nonEmpty
      (family, position) <- families.zipWithIndex
    } {
      var n = 0L
      writers(target).enter(step, position)
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

  private def publish(target: Int, index: Int, chunk: Array[Byte]): Unit = if (!abandoned(target)) {
    if (!order.isUrgent) ShippingThreads.pace(chunk.length, conf.maxBytesPerSecond)
    awaitRoom(chunk.length)
    val id = ShipmentFormat.chunkId(order.broadcast, store, target, index)
    Faults.at("export.chunk", store.partitionId)
    Shipments.put(id, Faults.change("export.chunk", chunk))
    inFlight += Sent(id, target, chunk.length)
    if (isCancelled) {
      // The order's broadcast may be gone, and with it what would have removed these.
      inFlight.foreach(sent => Shipments.remove(sent.id))
      throw new Cancelled
    }
  }

  /**
   * What was sent and nobody has fetched is bounded. Receivers free what they have fetched; those that
   * fetch nothing any more have given up, and get nothing any more.
   */
  private def awaitRoom(bytes: Long): Unit = {
    var deadline = System.nanoTime() + conf.timeoutMs * 2000000L
    def isFull = inFlight.nonEmpty && inFlight.iterator.map(_.bytes).sum + bytes > conf.maxBytesInFlight
    while (isFull) {
      if (isCancelled) throw new Cancelled
      if (inFlight.dequeueAll(sent => !Shipments.isHere(sent.id)).nonEmpty) {
        deadline = System.nanoTime() + conf.timeoutMs * 2000000L
      } else if (System.nanoTime() > deadline) {
        abandoned ++= inFlight.map(_.target)
        inFlight.dequeueAll(_ => true).foreach(sent => Shipments.remove(sent.id))
      } else {
        Thread.sleep(20)
      }
    }
  }
}

private final case class Sent(id: BlockId, target: Int, bytes: Long)

private final class Cancelled extends RuntimeException
