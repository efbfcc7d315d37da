package org.apache.spark.sql.binshift.sql

import org.apache.spark.sql.Row
import org.apache.spark.sql.catalyst.{CatalystTypeConverters, InternalRow}
import org.apache.spark.sql.connector.read.LocalScan
import org.apache.spark.sql.types.StructType

/**
 * Rows that are in the driver already; no task runs for them.
 *
 * @param made called once, when a plan is made physical
 */
private[sql] final class LocalRows(schema: StructType, made: => Seq[Row]) extends LocalScan {
  override def readSchema(): StructType = schema

  override lazy val rows: Array[InternalRow] = {
    val convert = CatalystTypeConverters.createToCatalystConverter(schema)
    made.map(convert(_).asInstanceOf[InternalRow]).toArray
  }
}
