package org.apache.spark.sql.execution.streaming.state.binshift.recovery

import java.util.TreeMap
import java.util.concurrent.atomic.{AtomicBoolean, AtomicLong}

import org.apache.hadoop.fs.Path
import org.rocksdb.{ReadOptions, RocksDB => NativeRocksDB, Snapshot, WriteBatch, WriteOptions}

import org.apache.spark.TaskContext
import org.apache.spark.sql.execution.streaming.state.RecordType
import org.apache.spark.sql.execution.streaming.state.binshift.{Faults, OrWarn, Trace}
import org.apache.spark.sql.execution.streaming.state.binshift.keys.{ColumnFamily, KeyRows, NumberedFamily}
import org.apache.spark.sql.execution.streaming.state.binshift.statistics.{RowCounts, RowsByBin}
import org.apache.spark.sql.execution.streaming.state.binshift.storage.{BinnedFileManager, RocksDBFields}
import org.apache.spark.util.ThreadUtils

/**
 * Applies the records of a store's changelogs without looking up each row. Spark looks rows up to keep count of them, and these
 * lookups take most of a replay's time, because blocks aren't in the cache while a store is loaded. Instead, the rows that the
 * records add are counted later, in a snapshot of the database as it was before.
 *
 * A short replay is left to Spark. So are the remaining records once the memory for keys is used up.
 *
 * Records are applied on the thread that loads the store. Counting is thread-safe. RocksDB can't close a database that has a
 * snapshot, so this object has to be closed first.
 *
 * @param isIdle whether a core is free of tasks
 */
private[binshift] final class QuickReplay(db: ReplayingRocksDB, isIdle: () => Boolean) extends BinnedFileManager.Replay
  with AutoCloseable with OrWarn {
  import QuickReplay._

  /** Evaluated late, because Spark also asks for changelogs before it opens the database, without reading them. */
  private lazy val native = RocksDBFields.native(db)
  private val options = new WriteOptions().setDisableWAL(true)
  private val batch = new WriteBatch()
  private val isCounted = db.conf.trackTotalNumberOfRows
  private var left = RecordsBySpark
  private var isFull = false
  private var isTraced = false

  /** The changed keys, and whether their rows exist after the changes. Guarded by this object, like all fields below. */
  private val changed = new TreeMap[Array[Byte], java.lang.Boolean](KeyRows.Order)
  private var before = Option.empty[Snapshot]
  private var families = Seq.empty[NumberedFamily]
  private var read = Option.empty[ReadOptions]
  private var bytes = 0L
  private val added = RowsByBin()
  private var isClosed = false

  private val isQueued = new AtomicBoolean

  /** True if it failed, or has handed over its rows. */
  def isEnded: Boolean = synchronized(isClosed)

  /** True if no key is left to be counted. */
  def isOver: Boolean = synchronized(changed.isEmpty)

  override def begin(): Unit = ()

  override def keeps(kind: RecordType.Value, key: Array[Byte], value: Array[Byte]): Boolean =
    if (left > 0) {
      left -= 1
      true
    } else if (isFull || isCounted && !note(key, kind != RecordType.DELETE_RECORD)) {
      // First writes the earlier records, to keep their order, and because Spark counts from there.
      write()
      isFull = true
      true
    } else {
      Change.by(kind)(put = batch.put(key, value), merge = batch.merge(key, value), delete = batch.delete(key))
      if (batch.getDataSize >= BatchBytes) write()
      false
    }

  override def end(): Unit = {
    write()
    if (Trace.isOn && left <= 0 && !isTraced) {
      isTraced = true
      Trace("quick replay", new Path(db.dfsRoot))
    }
    Faults.at("replay.quick", db.partition)
  }

  override def fail(): Unit = close()

  /** Counts in the background, while tasks leave a core free. */
  def count(): Unit = if (!isQueued.getAndSet(true)) Counting.execute { () =>
    try orWarn("replayed rows could not be counted in the background; they are counted when their number is needed")(
        while (synchronized(countSome())) if (!isIdle()) Thread.sleep(PauseMs))
    finally isQueued.set(false)
  }

  /**
   * Counts the remaining keys, and returns how many rows were added to each bin. To be called once. If the task is killed meanwhile, nothing
   * has changed.
   */
  def settle(): RowsByBin = synchronized {
    while (countSome()) Option(TaskContext.get()).foreach(_.killTaskIfInterrupted())
    close()
    added
  }

  /** Ends the counting; keys that are left are never counted. */
  override def close(): Unit = synchronized {
    if (!isClosed) {
      isClosed = true
      changed.clear()
      read.foreach(_.close())
      before.foreach { s =>
        if (native.isOwningHandle) native.releaseSnapshot(s)
        s.close()
      }
      giveBack(bytes)
      batch.close()
      options.close()
    }
  }

  private def write(): Unit = if (batch.count > 0) {
    native.write(options, batch)
    batch.clear()
  }

  /** Remembers a changed key. Returns false if there is no room for it. */
  private def note(key: Array[Byte], isThere: Boolean): Boolean = synchronized {
    if (before.isEmpty) {
      families = ColumnFamily.numbered(db, db.hasFamilies)
      before = Some(native.getSnapshot)
      read = before.map(new ReadOptions().setSnapshot(_).setFillCache(false))
    }
    val size = key.length + BytesOfKey
    val isNew = !changed.containsKey(key)
    val hasRoom = !isNew || Memory.addAndGet(size) <= MaxMemory || {
      Memory.addAndGet(-size)
      false
    }
    if (hasRoom) {
      changed.put(key, isThere)
      if (isNew) bytes += size
    }
    hasRoom
  }

  /** Counts some of the keys, and returns whether any are left. */
  private def countSome(): Boolean = {
    var n = 0
    while (n < KeysAtOnce && !changed.isEmpty && native.isOwningHandle) {
      val entry = changed.firstEntry
      val wasThere = native.get(read.get, entry.getKey, NoBytes) != NativeRocksDB.NOT_FOUND
      val more = (if (entry.getValue) 1 else 0) - (if (wasThere) 1 else 0)
      if (more != 0) {
        val of = NumberedFamily.of(entry.getKey, families)
        added.add(of.binOf(entry.getKey), RowCounts.of(of.family.isInternal, more))
      }
      changed.pollFirstEntry()
      giveBack(entry.getKey.length + BytesOfKey)
      n += 1
    }
    n == KeysAtOnce && !changed.isEmpty
  }

  private def giveBack(size: Long): Unit = {
    bytes -= size
    Memory.addAndGet(-size)
  }
}

private[binshift] object QuickReplay {
  /**
   * The first records of a load, which Spark applies and counts. Rows that are counted later are missing in the metrics of the
   * first epoch.
   */
  private val RecordsBySpark = 1000

  private val BatchBytes = 1L << 20
  private val KeysAtOnce = 256
  private val PauseMs = 20L

  /** Besides the key itself: its array, and its node in the tree. */
  private val BytesOfKey = 64L

  /** Bounds the uncounted keys of all stores of an executor. */
  private val MaxMemory = 64L << 20
  private val Memory = new AtomicLong

  private lazy val Counting = ThreadUtils.newDaemonSingleThreadExecutor("binshift-replayed")

  private val NoBytes = Array.emptyByteArray
}
