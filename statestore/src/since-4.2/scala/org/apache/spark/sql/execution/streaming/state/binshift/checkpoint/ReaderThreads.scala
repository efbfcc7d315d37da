package org.apache.spark.sql.execution.streaming.state.binshift.checkpoint

/** Threads for checksums of files, of a store that is only read: Spark 4.2 and later make no pool of threads then. */
private[binshift] object ReaderThreads {
  val Size: Int = 0
}
