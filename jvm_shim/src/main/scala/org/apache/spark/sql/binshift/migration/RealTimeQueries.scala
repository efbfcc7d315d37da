package org.apache.spark.sql.binshift.migration

import java.util.concurrent.ConcurrentHashMap

import scala.jdk.CollectionConverters._

import org.apache.spark.SparkContext

/**
 * The stateful queries in real-time mode, by their application. All tasks of a batch of theirs run at once, and Spark ends the query if
 * too few slots are free. So binshift runs no jobs of its own beside them, and makes no task wait for an executor, for the sake of any
 * query.
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
