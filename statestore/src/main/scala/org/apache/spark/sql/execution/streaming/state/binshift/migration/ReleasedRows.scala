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
 * Used by the store's task; only `turn` runs on another thread, and `close` may be called by any.
 */
private[binshift] final class ReleasedRows(db: BinKeyedRocksDB, store: StateStoreId) extends Logging {
  import ReleasedRows._

  /** The released bins that may have void rows. */
  @volatile private var bins = Set.empty[Int]
  /** The rest of the sweep: families, and the first key in each that wasn't looked at. Guarded by this object. */
  private var rest = List.empty[(NumberedFamily, Array[Byte])]
  /** Set without a lock, so that the background thread lets go at the next row. */
  @volatile private var isHeld = false
  @volatile private var isClosed = false
  /** Guarded by this object. */
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
    while (sweepSome(() => true)) Option(TaskContext.get()).foreach(_.killTaskIfInterrupted())
  }

  /** Sweeps in the background from now on, while a core is free; slowly, while none is. */
  def begin(): Unit = synchronized {
    isHeld = false
    queue(0)
  }

  /** Returns when the background thread doesn't use the database any more, which is soon. */
  def hold(): Unit = {
    isHeld = true
    synchronized { isHeld = true }
  }

  /**
   * Ends the use of the database by the background thread for good. The bins stay noted, because a task may still commit until the
   * database is closed, and must not make a snapshot of their rows.
   */
  def close(): Unit = {
    isClosed = true
    hold()
  }

  /** Called when the database was loaded from the checkpoint. */
  def forget(): Unit = synchronized {
    bins = Set.empty
    rest = Nil
  }

  private def maySweep: Boolean = !isHeld && !isClosed

  private def queue(delayNs: Long): Unit = if (!isQueued && maySweep && !isEmpty) {
    isQueued = true
    ShippingThreads.sweeps.schedule((() => turn()): Runnable, delayNs, TimeUnit.NANOSECONDS): Unit
  }

  private def turn(): Unit =
    try {
      Faults.at("sweep", store.partitionId)
      synchronized {
        isQueued = false
        if (maySweep && !isEmpty) {
          val began = System.nanoTime()
          if (sweepSome(() => maySweep))
            queue(if (ExecutorLoad.hasFreeCore) 0 else math.min(PausePerWork * (System.nanoTime() - began), MaxPauseNs))
        }
      }
    } catch {
      case NonFatal(e) =>
        // The next snapshot, or the next version that is loaded, tries again.
        synchronized { isQueued = false }
        logWarning(s"$store could not delete the rows of bins that it released; it will try again", e)
    }

  /** Looks at some rows while `goesOn`, and returns whether any are left. */
  private def sweepSome(goesOn: () => Boolean): Boolean = synchronized {
    rest = rest match {
      case (family, from) :: others => sweepSome(family, from, goesOn).fold(others)(next => (family, next) :: others)
      case Nil => Nil
    }
    if (rest.isEmpty && !isEmpty) {
      if (Trace.isOn) Trace("swept", store, "bins" -> Trace.ranges(bins.toSeq.sorted))
      bins = Set.empty
    }
    rest.nonEmpty
  }

  /** Looks at some rows of a family, and returns the key of the next one. Once it doesn't go on, it writes nothing. */
  private def sweepSome(family: NumberedFamily, from: Array[Byte], goesOn: () => Boolean): Option[Array[Byte]] = {
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
      while (rows.isValid && n < RowsAtOnce && goesOn()) {
        val key = rows.key
        if (bins(codec.binOf(key))) deletions.delete(key)
        rows.next()
        n += 1
      }
      rows.status()
      if (goesOn()) {
        native.write(writing, deletions)
        Option.when(rows.isValid)(rows.key)
      } else Some(from)
    } finally Seq(rows, deletions, writing, reading, end).foreach(_.close())
  }
}

private object ReleasedRows {
  /** How many rows are looked at in one go, which takes about a millisecond. */
  private val RowsAtOnce = 1000
  /** While no core is free, a pause is by so much longer than the work before it, so that a sweep takes a fifth of a core. */
  private val PausePerWork = 4
  private val MaxPauseNs = TimeUnit.MILLISECONDS.toNanos(20)
}
