package org.apache.spark.sql.binshift

import org.apache.spark.SparkContext
import org.apache.spark.sql.execution.streaming.runtime.StreamingQueryListenerBus

/** Who listens to the events of a context. */
object TestListeners {
  /** Sessions whose listeners hear of queries. */
  def count(context: SparkContext): Int = context.listenerBus.findListenersByClass[StreamingQueryListenerBus]().size
}
