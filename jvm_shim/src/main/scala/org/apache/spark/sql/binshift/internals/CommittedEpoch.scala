package org.apache.spark.sql.binshift.internals

import java.util.{Collections, WeakHashMap}
import java.util.concurrent.TimeUnit.SECONDS

import scala.jdk.CollectionConverters._

import org.apache.spark.sql.execution.streaming.runtime.StreamExecution

/**
 * The newest committed epoch of a query, known without a request to the checkpoint's file system. Any thread, at any rate.
 *
 * Relies on Spark: a run's commit log keeps the entries that the run has added, the last two, in memory from the moment
 * they are durable. Before the first of them the log is as the runs before have left it, and is listed once.
 *
 * Where `spark.sql.streaming.metadataCache.enabled` is off, the log is listed, once a second at most. An answer may then
 * be a second old: an epoch that is told as committed always is.
 */
private[binshift] object CommittedEpoch {
  private val MaxAgeNanos = SECONDS.toNanos(1)
  private val listed = Collections.synchronizedMap(new WeakHashMap[StreamExecution, Listed])

  /** -1 before the first. */
  def of(query: StreamExecution): Long = ofThisRun(query).getOrElse {
    val known = listed.get(query)
    if (known != null && (isOfRunKnown(query) || System.nanoTime() - known.atNanos < MaxAgeNanos)) known.epoch
    else {
      val now = Listed(query.commitLog.getLatestBatchId().getOrElse(-1L), System.nanoTime())
      listed.put(query, now)
      now.epoch
    }
  }

  /** Whether [[ofThisRun]] tells anything. */
  def isOfRunKnown(query: StreamExecution): Boolean = SparkInternals.keepsLogs(query)

  /** As far as the run itself has committed; `None` before its first epoch. */
  def ofThisRun(query: StreamExecution): Option[Long] = {
    val cache = query.commitLog.batchCache
    cache.synchronized(cache.keySet.asScala.maxOption)
  }
}

private final case class Listed(epoch: Long, atNanos: Long)
