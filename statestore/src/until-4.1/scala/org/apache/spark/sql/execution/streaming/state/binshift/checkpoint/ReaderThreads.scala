package org.apache.spark.sql.execution.streaming.state.binshift.checkpoint

/** Threads for checksums of files, of a store that is only read: Spark 4.1 wants a pair, and starts none before a checksum. */
private[binshift] object ReaderThreads {
  val Size: Int = 2
}
