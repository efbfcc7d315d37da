package org.apache.spark.sql.binshift.internals

import java.util.{Collections, WeakHashMap}
import java.util.concurrent.TimeUnit.SECONDS

import scala.jdk.CollectionConverters._

import org.apache.spark.sql.execution.streaming.runtime.StreamExecution

/**
 * The newest committed epoch of a query, known without a request to the checkpoint's file system. Any thread, at any rate.
 *
 * Relies on Spark: a run's commit log keeps the last two entries that the run has added in memory, from the moment when they are
 * durable. Before it has added any, the log is as earlier runs have left it, and is listed once.
 *
 * If `spark.sql.streaming.metadataCache.enabled` is off, the log is listed, at most once a second. Then an answer may be a second
 * old, but an epoch that is reported as committed always is.
 */
private[binshift] object CommittedEpoch {
  private val MaxAgeNanos = SECONDS.toNanos(1)
  private val listed = Collections.synchronizedMap(new WeakHashMap[StreamExecution, Listed])

  /** The newest committed epoch; -1 before the first. */
  def of(query: StreamExecution): Long = ofThisRun(query).getOrElse {
    val known = listed.get(query)
    if (known != null && (isOfRunKnown(query) || System.nanoTime() - known.atNanos < MaxAgeNanos)) known.epoch
    else {
      val now = Listed(query.commitLog.getLatestBatchId().getOrElse(-1L), System.nanoTime())
      listed.put(query, now)
      now.epoch
    }
  }

  /** True if [[ofThisRun]] can give an answer. */
  def isOfRunKnown(query: StreamExecution): Boolean = SparkInternals.keepsLogs(query)

  /** The newest epoch that the run itself has committed; `None` before its first. */
  def ofThisRun(query: StreamExecution): Option[Long] = {
    val cache = query.commitLog.batchCache
    cache.synchronized(cache.keySet.asScala.maxOption)
  }
}

private final case class Listed(epoch: Long, atNanos: Long)
