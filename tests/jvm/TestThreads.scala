package org.apache.spark.sql.execution.streaming.state.binshift

import scala.jdk.CollectionConverters._

/** The states of this JVM's threads. */
object TestThreads {
  /** True if a thread is in a method of that name. */
  def isIn(method: String): Boolean =
    Thread.getAllStackTraces.values.asScala.exists(_.exists(_.getMethodName == method))

  /** The number of threads with this prefix of names that wait for a lock. */
  def blocked(name: String): Int =
    Thread.getAllStackTraces.keySet.asScala.count(t => t.getName.startsWith(name) && t.getState == Thread.State.BLOCKED)
}
