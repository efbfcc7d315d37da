package org.apache.spark.sql.execution.streaming.state.binshift.keys

import org.apache.spark.sql.execution.streaming.state.KeyStateEncoderSpec
import org.apache.spark.sql.types.StructType

/** Keys with a time of their own at the end of their schema, of which Spark 4.1 has none. */
private[binshift] object TimestampKeys {
  def schemaOf(spec: KeyStateEncoderSpec): Option[StructType] = None

  def areInOrder(spec: KeyStateEncoderSpec): Boolean = false
}
