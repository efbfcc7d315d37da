package org.apache.spark.sql.execution.streaming.state.binshift.provider

/** Which partitions Spark's readers open: 4.1 opens all that have a directory, retired ones too. */
private[provider] object ReadPartitions {
  val MayBeRetired: Boolean = true
}
