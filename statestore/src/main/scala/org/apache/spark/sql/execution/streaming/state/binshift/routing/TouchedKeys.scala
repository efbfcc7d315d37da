package org.apache.spark.sql.execution.streaming.state.binshift.routing

import java.util.concurrent.ConcurrentHashMap

import scala.collection.mutable

import org.apache.spark.TaskContext
import org.apache.spark.sql.catalyst.expressions.UnsafeRow

/**
 * Remembers the keys of arriving bins that a running task has read, before it looks up the state of the first of them. So it can
 * request the rows of their state together.
 *
 * It is only a hint: for a key that is missing here, the whole bin is fetched, and for a key too many, a row that nobody looks at.
 *
 * Thread-safe: Python's operators may read rows on another thread than the one that looks up state.
 */
private[binshift] final class TouchedKeys {
  import TouchedKeys._

  private val seen = new java.util.HashSet[UnsafeRow]()
  private val keys = mutable.ArrayBuffer.empty[TouchedKey]
  private var bytes = 0L
  private var forgetting = Set.empty[Long]
  private var late = Set.empty[Int]

  /** Adds a copy of a key, unless there are too many already. */
  def add(bin: Int, key: UnsafeRow): Unit = synchronized {
    if (keys.size < MaxKeys && bytes < MaxBytes && !seen.contains(key)) {
      val mine = key.copy()
      seen.add(mine)
      keys += TouchedKey(bin, mine)
      bytes += mine.getSizeInBytes
    }
  }

  /** True if a scan of `operator` may omit rows that haven't arrived, because it only removes rows that no later row can meet. */
  def leavesOut(operator: Long): Boolean = synchronized(forgetting(operator))

  /** The bins that may not have arrived, according to the plan of the epoch. They are the same in all attempts of the task. */
  def onTheWay: Set[Int] = synchronized(late)

  private def leaveOut(operators: Set[Long], bins: Set[Int]): Unit = synchronized {
    forgetting ++= operators
    late ++= bins
  }

  /** The keys after the first `known` ones. */
  def after(known: Int): Seq[TouchedKey] = synchronized(if (known == keys.size) Nil else keys.drop(known).toSeq)
}

/** @param key the columns that the exchange hashes, which are also the key by which the operator looks up its state */
private[binshift] final case class TouchedKey(bin: Int, key: UnsafeRow)

private[binshift] object TouchedKeys {
  /** With more keys than this, whole bins are cheaper. */
  private val MaxKeys = 200000
  private val MaxBytes = 32L << 20

  private val tasks = new ConcurrentHashMap[Long, TouchedKeys]()

  /** The keys noted by an attempt of a task; `None` if it notes none. */
  def of(attempt: Long): Option[TouchedKeys] = Option(tasks.get(attempt))

  /**
   * Begins to note keys in the task of this thread. A task may read several exchanges, which add to the same keys.
   *
   * @param forgetting ids of operators whose scans only remove rows that no later row meets
   * @param onTheWay   bins that may not have arrived
   */
  def begin(forgetting: Set[Long], onTheWay: Set[Int]): TouchedKeys = {
    val task = TaskContext.get()
    val id = task.taskAttemptId()
    val fresh = new TouchedKeys
    val touched = Option(tasks.putIfAbsent(id, fresh)).getOrElse {
      task.addTaskCompletionListener[Unit] { _ =>
        tasks.remove(id)
        ()
      }
      fresh
    }
    touched.leaveOut(forgetting, onTheWay)
    touched
  }
}
