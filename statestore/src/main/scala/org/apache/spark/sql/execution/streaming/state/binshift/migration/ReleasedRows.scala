package org.apache.spark.sql.execution.streaming.state.binshift.migration

import java.util.concurrent.TimeUnit

import scala.util.control.NonFatal

import org.rocksdb.{ReadOptions, Slice, WriteBatch, WriteOptions}

import org.apache.spark.TaskContext
import org.apache.spark.internal.Logging
import org.apache.spark.sql.execution.streaming.state.binshift.{Faults, Trace}
import org.apache.spark.sql.execution.streaming.state.binshift.keys.{BinKeyCodec, ColumnFamily, NumberedFamily}
import org.apache.spark.sql.execution.streaming.state.binshift.shipping.{ExecutorLoad, ShippingThreads}
import org.apache.spark.sql.execution.streaming.state.binshift.storage.{BinKeyedRocksDB, RocksDBFields}
import org.apache.spark.sql.execution.streaming.state.StateStoreId

/**
 * The rows of released bins in families that are read in order, for example timers. They are scattered among the rows of bins that
 * stay, so a switch leaves them in the database. They are void there: scans pass over rows of bins that the partition doesn't own
 * ([[BinKeyedRocksDB]]). A background thread sweeps the families, which means that it deletes these rows.
 *
 * Invariants:
 *
 *  - An owned bin has no void rows. A switch that brings back a bin sweeps first.
 *  - A snapshot has no void rows. It waits until they are swept, so whoever reads the checkpoint needs to know nothing of them, and
 *    a database that was loaded from there has none.
 *  - Void rows don't count as rows of the store, and no changelog tells that they were deleted.
 *
 * Used by the store's task; only `turn` runs on another thread.
 */
private[binshift] final class ReleasedRows(db: BinKeyedRocksDB, store: StateStoreId) extends Logging {
  import ReleasedRows._

  /** The released bins that may have void rows. */
  @volatile private var bins = Set.empty[Int]
  /** The rest of the sweep: families, and the first key in each that wasn't looked at. Guarded by this object, like the rest. */
  private var rest = List.empty[(NumberedFamily, Array[Byte])]
  private var isHeld = false
  private var isQueued = false

  def isEmpty: Boolean = bins.isEmpty

  def contains(bin: Int): Boolean = bins(bin)

  /** Called when `released` have just been released. The sweep starts over, because it may have passed some of their rows. */
  def add(released: Seq[Int]): Unit = synchronized {
    val ordered = ColumnFamily.numbered(db, db.hasFamilies).filter(_.family.isReadInOrder)
    if (ordered.nonEmpty) {
      bins ++= released
      rest = ordered.map(family => family -> family.prefix).toList
    }
  }

  /** Deletes all void rows now. If the task is killed meanwhile, the sweep goes on later. */
  def sweep(): Unit = if (!isEmpty) {
    Faults.at("switch.sweep", store.partitionId)
    while (sweepSome()) Option(TaskContext.get()).foreach(_.killTaskIfInterrupted())
  }

  /** Sweeps in the background from now on, while a core is free; slowly, while none is. */
  def begin(): Unit = synchronized {
    isHeld = false
    queue(0)
  }

  /** Returns when no other thread uses the database any more. */
  def hold(): Unit = synchronized { isHeld = true }

  /** Called when the database was loaded from the checkpoint, or is closed. */
  def forget(): Unit = synchronized {
    bins = Set.empty
    rest = Nil
  }

  private def queue(delayMs: Long): Unit = if (!isQueued && !isHeld && !isEmpty) {
    isQueued = true
    ShippingThreads.sweeps.schedule((() => turn()): Runnable, delayMs, TimeUnit.MILLISECONDS): Unit
  }

  private def turn(): Unit = synchronized {
    isQueued = false
    if (!isHeld && !isEmpty) {
      try {
        Faults.at("sweep", store.partitionId)
        if (sweepSome()) queue(if (ExecutorLoad.hasFreeCore) 0 else PauseMs)
      } catch {
        // The next snapshot, or the next version that is loaded, tries again.
        case NonFatal(e) => logWarning(s"$store could not delete the rows of bins that it released; it will try again", e)
      }
    }
  }

  /** Looks at some rows, and returns whether any are left. */
  private def sweepSome(): Boolean = synchronized {
    rest = rest match {
      case (family, from) :: others => sweepSome(family, from).fold(others)(next => (family, next) :: others)
      case Nil => Nil
    }
    if (rest.isEmpty && !isEmpty) {
      if (Trace.isOn) Trace("swept", store, "bins" -> Trace.ranges(bins.toSeq.sorted))
      bins = Set.empty
    }
    rest.nonEmpty
  }

  /** Looks at some rows of a family, and returns the key of the next one. */
  private def sweepSome(family: NumberedFamily, from: Array[Byte]): Option[Array[Byte]] = {
    val native = RocksDBFields.native(db)
    val codec = BinKeyCodec.of(family.family.name)
    val end = new Slice(NumberedFamily.successor(family.prefix))
    val reading = new ReadOptions().setIterateUpperBound(end).setFillCache(false)
    val writing = new WriteOptions().setDisableWAL(true)
    val deletions = new WriteBatch()
    val rows = native.newIterator(native.getDefaultColumnFamily, reading)
    try {
      var n = 0
      rows.seek(from)
      while (rows.isValid && n < RowsAtOnce) {
        val key = rows.key
        if (bins(codec.binOf(key))) deletions.delete(key)
        rows.next()
        n += 1
      }
      rows.status()
      native.write(writing, deletions)
      Option.when(rows.isValid)(rows.key)
    } finally Seq(rows, deletions, writing, reading, end).foreach(_.close())
  }
}

private object ReleasedRows {
  /** How many rows are looked at in one go, which takes about a millisecond. */
  private val RowsAtOnce = 1000
  private val PauseMs = 20L
}
