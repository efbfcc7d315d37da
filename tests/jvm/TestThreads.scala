package org.apache.spark.sql.execution.streaming.state.binshift

import scala.jdk.CollectionConverters._

/** What the threads of this JVM are doing. */
object TestThreads {
  /** Whether a thread is in a method of that name. */
  def isIn(method: String): Boolean =
    Thread.getAllStackTraces.values.asScala.exists(_.exists(_.getMethodName == method))

  /** How many threads, of those whose names begin like that, wait for a lock. */
  def blocked(name: String): Int =
    Thread.getAllStackTraces.keySet.asScala.count(t => t.getName.startsWith(name) && t.getState == Thread.State.BLOCKED)
}
