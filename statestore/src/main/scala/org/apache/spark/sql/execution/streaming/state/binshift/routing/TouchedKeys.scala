package org.apache.spark.sql.execution.streaming.state.binshift.routing

import java.util.concurrent.ConcurrentHashMap

import scala.collection.mutable

import org.apache.spark.TaskContext
import org.apache.spark.sql.catalyst.expressions.UnsafeRow

/**
 * The keys of arriving bins whose rows a running task has read, before it looks up the state of the first of them. So the rows
 * of their state are asked for together.
 *
 * It is a hint: a key that is missing here has its whole bin fetched, and one too many a row that nobody looks at.
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

  /** Adds a key, which the caller may change afterwards; those above a number are forgotten. */
  def add(bin: Int, key: UnsafeRow): Unit = synchronized {
    if (keys.size < MaxKeys && bytes < MaxBytes && !seen.contains(key)) {
      val mine = key.copy()
      seen.add(mine)
      keys += TouchedKey(bin, mine)
      bytes += mine.getSizeInBytes
    }
  }

  /** Whether a scan of `operator` may leave out rows that are not here, since it only removes such as no later row meets. */
  def leavesOut(operator: Long): Boolean = synchronized(forgetting(operator))

  /** The bins that may not have come, as the plan of the epoch has it: the same in all attempts of the task. */
  def onTheWay: Set[Int] = synchronized(late)

  private def leaveOut(operators: Set[Long], bins: Set[Int]): Unit = synchronized {
    forgetting ++= operators
    late ++= bins
  }

  /** The keys behind the first `known`. */
  def after(known: Int): Seq[TouchedKey] = synchronized(if (known == keys.size) Nil else keys.drop(known).toSeq)
}

/** @param key the columns that the exchange hashes, by which an operator that looks up by key looks up */
private[binshift] final case class TouchedKey(bin: Int, key: UnsafeRow)

private[binshift] object TouchedKeys {
  /** With more, whole bins are the cheaper way. */
  private val MaxKeys = 200000
  private val MaxBytes = 32L << 20

  private val tasks = new ConcurrentHashMap[Long, TouchedKeys]()

  /** Those of an attempt of a task; `None` if none were noted. */
  def of(attempt: Long): Option[TouchedKeys] = Option(tasks.get(attempt))

  /**
   * Those of the task of this thread, to which it adds. A task may read several exchanges.
   *
   * @param forgetting ids of operators whose scans only remove rows that no later row meets
   * @param onTheWay   bins that may not have come
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
