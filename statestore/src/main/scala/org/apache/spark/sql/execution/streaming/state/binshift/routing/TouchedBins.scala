package org.apache.spark.sql.execution.streaming.state.binshift.routing

import java.util.concurrent.ConcurrentHashMap

import scala.jdk.CollectionConverters._

import org.apache.spark.TaskContext

/**
 * The arriving bins of the rows that a running task has read, before it looks up the state of the first of them. So bins that
 * come on demand are asked for together, and not one after the other.
 *
 * It is a hint: a bin that is missing here is asked for when it is touched, and one too many comes sooner than it has to.
 *
 * Known by the attempt of the task, since rows may be read by another thread than looks up state. Thread-safe.
 */
private[binshift] object TouchedBins {
  private val tasks = new ConcurrentHashMap[Long, java.util.Set[Int]]()

  /** The task of this thread has read rows of `bins`. */
  def add(bins: Iterable[Int]): Unit = for (task <- Option(TaskContext.get()) if bins.nonEmpty) {
    val id = task.taskAttemptId()
    val fresh = ConcurrentHashMap.newKeySet[Int]()
    val known = Option(tasks.putIfAbsent(id, fresh)).getOrElse {
      task.addTaskCompletionListener[Unit] { _ =>
        tasks.remove(id)
        ()
      }
      fresh
    }
    bins.foreach(known.add)
  }

  /** Those of the rows that the task of this thread has read so far. */
  def ofTask: Set[Int] =
    Option(TaskContext.get()).flatMap(task => Option(tasks.get(task.taskAttemptId()))).fold(Set.empty[Int])(_.asScala.toSet)
}
