package org.apache.spark.sql.execution.streaming.state.binshift.recovery

import java.util.TreeMap
import java.util.concurrent.atomic.{AtomicBoolean, AtomicLong}

import scala.util.control.NonFatal

import org.apache.hadoop.fs.Path
import org.rocksdb.{ReadOptions, RocksDB => NativeRocksDB, Snapshot, WriteBatch, WriteOptions}

import org.apache.spark.TaskContext
import org.apache.spark.internal.Logging
import org.apache.spark.sql.execution.streaming.state.RecordType
import org.apache.spark.sql.execution.streaming.state.binshift.{Faults, Trace}
import org.apache.spark.sql.execution.streaming.state.binshift.keys.{ColumnFamily, KeyRows}
import org.apache.spark.sql.execution.streaming.state.binshift.statistics.RowCounts
import org.apache.spark.sql.execution.streaming.state.binshift.storage.{BinnedFileManager, RocksDBFields}
import org.apache.spark.util.ThreadUtils

/**
 * Applies the records of a store's changelogs without looking up each row, as Spark does to keep count of rows: blocks are not
 * in the cache when a store is loaded, so that the lookups take most of a replay's time. What the records have added is
 * counted later, in a snapshot of the database as it was before.
 *
 * A short replay is left to Spark, and so is what the memory for keys has no room for.
 *
 * Records are applied on the thread that loads the store. Counting is thread-safe. The snapshot has to be gone before the
 * database is closed: RocksDB refuses otherwise.
 *
 * @param isIdle whether tasks leave a core
 */
private[binshift] final class QuickReplay(db: ReplayingRocksDB, isIdle: () => Boolean) extends BinnedFileManager.Replay
  with AutoCloseable with Logging {
  import QuickReplay._

  /** Spark asks for changelogs before it opens the database, too, and does not read them then. */
  private lazy val native = RocksDBFields.native(db)
  private val options = new WriteOptions().setDisableWAL(true)
  private val batch = new WriteBatch()
  private val isCounted = db.conf.trackTotalNumberOfRows
  private var left = RecordsBySpark
  private var isFull = false
  private var isTraced = false

  /** The keys that were changed, and whether they are there since; guarded by this, like all that follows. */
  private val changed = new TreeMap[Array[Byte], java.lang.Boolean](KeyRows.Order)
  private var before = Option.empty[Snapshot]
  /** Prefixes of families that users do not see, as they are while records are applied. */
  private var internal = Seq.empty[Array[Byte]]
  private var read = Option.empty[ReadOptions]
  private var bytes = 0L
  private var added = RowCounts.Zero
  private var isClosed = false

  private val isQueued = new AtomicBoolean

  /** Whether it failed, or its rows were handed over. */
  def isEnded: Boolean = synchronized(isClosed)

  /** Whether nothing is left to be counted. */
  def isOver: Boolean = synchronized(changed.isEmpty)

  override def begin(): Unit = ()

  override def keeps(kind: RecordType.Value, key: Array[Byte], value: Array[Byte]): Boolean =
    if (left > 0) {
      left -= 1
      true
    } else if (isFull || isCounted && !note(key, kind != RecordType.DELETE_RECORD)) {
      // In the order of the records; and Spark's count goes on from here.
      write()
      isFull = true
      true
    } else {
      kind match {
        case RecordType.PUT_RECORD => batch.put(key, value)
        case RecordType.MERGE_RECORD => batch.merge(key, value)
        case RecordType.DELETE_RECORD => batch.delete(key)
        case other => throw new IllegalStateException(s"a changelog record of kind $other cannot be replayed")
      }
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

  /** Counts in the background, with what tasks leave of the processor. */
  def count(): Unit = if (!isQueued.getAndSet(true)) Counting.execute { () =>
    try while (synchronized(countSome())) if (!isIdle()) Thread.sleep(PauseMs)
    catch { case NonFatal(e) => logWarning("rows that were replayed are counted when their number is needed", e) }
    finally isQueued.set(false)
  }

  /** Counts what is left, and hands over how many rows were added; once. Nothing has changed if the task is killed meanwhile. */
  def settle(): RowCounts = synchronized {
    while (countSome()) Option(TaskContext.get()).foreach(_.killTaskIfInterrupted())
    close()
    added
  }

  /** What was not counted never is. */
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

  /** Whether there was room for the key. */
  private def note(key: Array[Byte], isThere: Boolean): Boolean = synchronized {
    if (before.isEmpty) {
      internal = ColumnFamily.numbered(db, db.hasFamilies).filter(_.family.isInternal).map(_.prefix)
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

  /** Counts some of the keys; whether more are left. */
  private def countSome(): Boolean = {
    var n = 0
    while (n < KeysAtOnce && !changed.isEmpty && native.isOwningHandle) {
      val entry = changed.firstEntry
      val wasThere = native.get(read.get, entry.getKey, NoBytes) != NativeRocksDB.NOT_FOUND
      val more = (if (entry.getValue) 1 else 0) - (if (wasThere) 1 else 0)
      if (more != 0) added = added + RowCounts.of(isInternal(entry.getKey), more)
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

  private def isInternal(key: Array[Byte]): Boolean = internal.exists(key.startsWith(_))
}

private[binshift] object QuickReplay {
  /** Of a load. Rows that are counted later are not in the metrics of the first epoch. */
  private val RecordsBySpark = 1000

  private val BatchBytes = 1L << 20
  private val KeysAtOnce = 256
  private val PauseMs = 20L

  /** Beside the key itself: its array, the node in the tree. */
  private val BytesOfKey = 64L

  /** For keys of all stores of an executor that are still to be counted. */
  private val MaxMemory = 64L << 20
  private val Memory = new AtomicLong

  private lazy val Counting = ThreadUtils.newDaemonSingleThreadExecutor("binshift-replayed")

  private val NoBytes = Array.emptyByteArray
}
