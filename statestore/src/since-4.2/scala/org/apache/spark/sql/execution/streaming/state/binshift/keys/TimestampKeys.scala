package org.apache.spark.sql.execution.streaming.state.binshift.keys

import org.apache.spark.sql.execution.streaming.state.{KeyStateEncoderSpec, TimestampAsPostfixKeyStateEncoderSpec, TimestampAsPrefixKeyStateEncoderSpec}
import org.apache.spark.sql.types.StructType

/** Keys with a time of their own at the end of their schema, which state format 4 of joins has since Spark 4.2. */
private[binshift] object TimestampKeys {
  /** The schema of the key and its time, if the family has such keys. */
  def schemaOf(spec: KeyStateEncoderSpec): Option[StructType] = spec match {
    case TimestampAsPrefixKeyStateEncoderSpec(schema) => Some(schema)
    case TimestampAsPostfixKeyStateEncoderSpec(schema) => Some(schema)
    case _ => None
  }

  /** True if rows are stored in the order of their time. */
  def areInOrder(spec: KeyStateEncoderSpec): Boolean = spec.isInstanceOf[TimestampAsPrefixKeyStateEncoderSpec]
}
