package org.apache.spark.sql.execution.streaming.state.binshift.provider

import java.util.concurrent.ConcurrentHashMap

import org.apache.spark.TaskContext
import org.apache.spark.sql.execution.streaming.state.StateStoreId

/** The databases of running tasks that count the values of a join's keys, for the stores of those values. Thread-safe. */
private[provider] object CountingStores {
  private val stores = new ConcurrentHashMap[(Long, StateStoreId), BinnedRocksDB]()

  /** Until the task of this thread ends, `db` is what its store `id` has. */
  def add(task: TaskContext, id: StateStoreId, db: BinnedRocksDB): Unit = {
    val key = (task.taskAttemptId(), id)
    if (stores.put(key, db) == null) task.addTaskCompletionListener[Unit] { _ =>
      stores.remove(key)
      ()
    }
  }

  /** That of store `id` of an attempt of a task, if it has opened it. */
  def of(attempt: Long, id: StateStoreId): Option[BinnedRocksDB] = Option(stores.get((attempt, id)))
}
