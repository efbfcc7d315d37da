package org.apache.spark.sql.binshift.sql

import java.util

import org.apache.spark.sql.Row
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.connector.catalog.{Column, SupportsRead, Table, TableCapability}
import org.apache.spark.sql.connector.read.{Scan, ScanBuilder}
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/**
 * A table of `binshift.system`. Its rows are what the running queries of the application say at the moment when it is read.
 *
 * @param rowsOf makes the rows, given the session that reads the table
 */
private[sql] final class SystemTable(override val name: String, columnsOf: StructType, rowsOf: SparkSession => Seq[Row])
  extends Table with SupportsRead {

  override def columns(): Array[Column] =
    columnsOf.fields.map(f => Column.create(f.name, f.dataType, f.nullable))

  override def capabilities(): util.Set[TableCapability] = util.Set.of(TableCapability.BATCH_READ)

  override def newScanBuilder(options: CaseInsensitiveStringMap): ScanBuilder = new ScanBuilder {
    private val session = SparkSession.active
    override def build(): Scan = new LocalRows(columnsOf, SqlFailure.raised(rowsOf(session)))
  }
}
