package org.apache.spark.sql.binshift.migration

import java.util.concurrent.ConcurrentHashMap

import scala.jdk.CollectionConverters._

import org.apache.spark.SparkContext

/**
 * Queries with state that run in real-time mode, by their application. All tasks of their batches run at once, and Spark ends
 * a query whose batch finds too few slots. So binshift has no jobs of its own beside them, and no task waits for an executor,
 * whichever query would gain by that.
 *
 * Thread-safe.
 */
private[binshift] object RealTimeQueries {
  private val running = new ConcurrentHashMap[AnyRef, SparkContext]()

  def begin(owner: AnyRef, context: SparkContext): Unit = {
    running.put(owner, context)
    LocalityWait.giveUp(context)
  }

  def end(owner: AnyRef): Unit = running.remove(owner)

  def areIn(context: SparkContext): Boolean = running.values.asScala.exists(_ eq context)
}
