package org.apache.spark.sql.binshift

import org.apache.spark.SparkContext
import org.apache.spark.sql.execution.streaming.runtime.StreamingQueryListenerBus

/** The listeners of a context's events. */
object TestListeners {
  /** The number of sessions whose listeners hear of queries. */
  def count(context: SparkContext): Int = context.listenerBus.findListenersByClass[StreamingQueryListenerBus]().size
}
