package org.apache.spark.sql.execution.streaming.state.binshift.provider

import java.util.concurrent.ConcurrentHashMap

import org.apache.spark.TaskContext
import org.apache.spark.sql.execution.streaming.state.StateStoreId

/** Registers the databases of running tasks that count the values of a join's keys, for the stores of these values. Thread-safe. */
private[provider] object CountingStores {
  private val stores = new ConcurrentHashMap[(Long, StateStoreId), BinnedRocksDB]()

  /** Registers `db` as the database of store `id`, until the task of this thread ends. */
  def add(task: TaskContext, id: StateStoreId, db: BinnedRocksDB): Unit = {
    val key = (task.taskAttemptId(), id)
    if (stores.put(key, db) == null) task.addTaskCompletionListener[Unit] { _ =>
      stores.remove(key)
      ()
    }
  }

  /** The database of store `id` in an attempt of a task, if that has opened it. */
  def of(attempt: Long, id: StateStoreId): Option[BinnedRocksDB] = Option(stores.get((attempt, id)))
}
