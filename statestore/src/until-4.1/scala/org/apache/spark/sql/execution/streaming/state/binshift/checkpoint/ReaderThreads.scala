package org.apache.spark.sql.execution.streaming.state.binshift.checkpoint

/** Threads for checksums of files, of a store that is only read: Spark 4.1 makes a pool of one thread at least, which starts none before there is a checksum. */
private[binshift] object ReaderThreads {
  val Size: Int = 1
}
