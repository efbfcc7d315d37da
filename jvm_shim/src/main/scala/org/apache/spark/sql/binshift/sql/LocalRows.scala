package org.apache.spark.sql.binshift.sql

import org.apache.spark.sql.Row
import org.apache.spark.sql.catalyst.{CatalystTypeConverters, InternalRow}
import org.apache.spark.sql.connector.read.LocalScan
import org.apache.spark.sql.types.StructType

/**
 * A scan of rows that are in the driver already, so that no task has to run.
 *
 * @param made evaluated once, when the physical plan is made
 */
private[sql] final class LocalRows(schema: StructType, made: => Seq[Row]) extends LocalScan {
  override def readSchema(): StructType = schema

  override lazy val rows: Array[InternalRow] = {
    val convert = CatalystTypeConverters.createToCatalystConverter(schema)
    made.map(convert(_).asInstanceOf[InternalRow]).toArray
  }
}
