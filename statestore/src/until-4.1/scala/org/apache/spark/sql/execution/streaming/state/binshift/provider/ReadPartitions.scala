package org.apache.spark.sql.execution.streaming.state.binshift.provider

/** Describes which partitions Spark's readers open: 4.1 opens all that have a directory, including retired ones. */
private[provider] object ReadPartitions {
  val MayBeRetired: Boolean = true
}
