package org.apache.spark.sql.binshift.sql

import java.util

import scala.jdk.CollectionConverters._

import org.apache.spark.sql.Row
import org.apache.spark.sql.binshift.client.RunningQueries
import org.apache.spark.sql.binshift.internals.SparkInternals
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.connector.catalog.procedures.{BoundProcedure, ProcedureParameter, UnboundProcedure}
import org.apache.spark.sql.connector.read.Scan
import org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution
import org.apache.spark.sql.execution.streaming.state.binshift.BinshiftException
import org.apache.spark.sql.types._

/**
 * A procedure of `binshift.system`.
 *
 * Relies on Spark: a procedure is called once for each CALL, while the statement is analysed, and EXPLAIN does not call it.
 *
 * @param result the columns of the rows that it returns
 * @param run    called on the thread that analyses the statement
 */
private[sql] final class SystemProcedure(
    override val name: String, override val description: String, takes: Seq[Parameter], result: StructType,
    run: (SparkSession, Arguments) => Seq[Row])
  extends UnboundProcedure with BoundProcedure {

  override def bind(inputType: StructType): BoundProcedure = this

  override def parameters(): Array[ProcedureParameter] = takes.map(_.toSpark).toArray

  override def isDeterministic(): Boolean = false

  override def call(input: InternalRow): util.Iterator[Scan] = SqlFailure.raised {
    SparkInternals.requireSupportedVersion()
    val rows = run(SparkSession.active, new Arguments(input, takes))
    Iterator[Scan](new LocalRows(result, rows)).asJava
  }
}

/** @param default a SQL expression; a parameter without a default has to be given */
private[sql] final case class Parameter(name: String, kind: DataType, comment: String, default: Option[String] = None) {
  def toSpark: ProcedureParameter = {
    val made = ProcedureParameter.in(name, kind).comment(comment)
    default.fold(made)(made.defaultValue).build()
  }
}

/** The arguments of a call of a procedure, in the order of its parameters. */
private[sql] final class Arguments(row: InternalRow, takes: Seq[Parameter]) {
  private def find[A](name: String)(get: Int => A): Option[A] = {
    val at = takes.indexWhere(_.name == name)
    Option.when(at >= 0 && !row.isNullAt(at))(get(at))
  }

  private def required[A](name: String, found: Option[A]): A = found.getOrElse(
    throw BinshiftException("INVALID_VALUE", "name" -> name, "value" -> "NULL").plan(
      s"${name.replace('_', ' ')} NULL is impossible; give a value"))

  def textOf(name: String): Option[String] = find(name)(row.getUTF8String(_).toString)
  def text(name: String): String = required(name, textOf(name))
  def intOf(name: String): Option[Int] = find(name)(row.getInt)
  def int(name: String): Int = required(name, intOf(name))
  def doubleOf(name: String): Option[Double] = find(name)(row.getDouble)
  def longOf(name: String): Option[Long] = find(name)(row.getLong)
  def flag(name: String): Boolean = required(name, find(name)(row.getBoolean))

  def texts(name: String): Seq[String] = find(name)(row.getArray).fold(Seq.empty[String]) { values =>
    (0 until values.numElements()).filterNot(values.isNullAt).map(values.getUTF8String(_).toString)
  }

  def query(session: SparkSession): MicroBatchExecution = RunningQueries.find(session, text("query"))
}
