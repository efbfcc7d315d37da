package org.apache.spark.sql.execution.streaming.state.binshift.provider

import java.util.concurrent.ConcurrentHashMap

import org.apache.spark.TaskContext
import org.apache.spark.sql.execution.streaming.state.StateStoreId

/** Which bins the stores of running tasks lack, for other stores of the same task. Thread-safe. */
private[provider] object LackingStores {
  private val stores = new ConcurrentHashMap[(Long, StateStoreId), Int => Boolean]()

  /** Until the task of this thread ends, `isMissing` tells which bins of its store `id` have not come. */
  def add(task: TaskContext, id: StateStoreId, isMissing: Int => Boolean): Unit = {
    val key = (task.taskAttemptId(), id)
    if (stores.put(key, isMissing) == null) task.addTaskCompletionListener[Unit] { _ =>
      stores.remove(key)
      ()
    }
  }

  /** What tells it of store `id` of an attempt of a task; `None` if that store lacked none when it was opened. */
  def missing(attempt: Long, id: StateStoreId): Option[Int => Boolean] = Option(stores.get((attempt, id)))
}
