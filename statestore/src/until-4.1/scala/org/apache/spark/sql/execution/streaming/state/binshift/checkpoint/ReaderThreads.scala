package org.apache.spark.sql.execution.streaming.state.binshift.checkpoint

/** The number of checksum threads for a store that is only read. Spark 4.1 requires two, and starts none before the first checksum. */
private[binshift] object ReaderThreads {
  val Size: Int = 2
}
