package org.apache.spark.sql.execution.streaming.state.binshift.provider

/** Describes which partitions Spark's readers open: 4.2 and later open those of the version that is read. */
private[provider] object ReadPartitions {
  val MayBeRetired: Boolean = false
}
