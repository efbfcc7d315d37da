package org.apache.spark.sql.execution.streaming.state.binshift.checkpoint

/** The number of checksum threads for a store that is only read. Spark 4.2 and later create no pool for zero threads. */
private[binshift] object ReaderThreads {
  val Size: Int = 0
}
