package org.apache.spark.sql.binshift.sql

import org.json4s.JsonDSL._
import org.json4s.jackson.JsonMethods.{compact, render}

import org.apache.spark.sql.AnalysisException
import org.apache.spark.sql.execution.streaming.state.binshift.BinshiftException

/**
 * A failure of binshift, in the form in which SQL statements raise it. `getCondition` is Python's `condition`, and the message
 * parameters have the values that the message names. A client of Spark Connect gets both.
 *
 * Relies on Spark: Spark Connect sends condition and parameters of an `AnalysisException` to its client.
 */
private[sql] final class SqlFailure(failure: BinshiftException) extends AnalysisException(
    failure.getMessage, cause = Some(failure), errorClass = Some(SqlFailure.conditionOf(failure)),
    messageParameters = failure.json.values.map { case (name, value) =>
      name -> value.toString
    } +
      (SqlFailure.Parameter -> SqlFailure.typed(failure))) {

  /** Overridden because Spark would look the condition up among its own to find the state. */
  override def getSqlState: String = SqlFailure.State
}

private[sql] object SqlFailure {
  /** The parameter from which Python makes its error: the kind, and the parameters with their types. */
  val Parameter = "binshift"

  /** "External routine exception" of the SQL standard. */
  private val State = "38000"

  private val OfKind = Map(
    "ConfigurationError" -> "CONFIGURATION", "PlanError" -> "PLAN_REFUSED", "MigrationError" -> "MIGRATION_REFUSED",
    "UnsupportedOperatorError" -> "UNSUPPORTED_OPERATOR", "UnsupportedVersionError" -> "UNSUPPORTED_VERSION")

  /** Runs `body`, and raises a failure of binshift as a [[SqlFailure]]. */
  def raised[A](body: => A): A =
    try body
    catch { case e: BinshiftException => throw new SqlFailure(e) }

  private def conditionOf(e: BinshiftException): String =
    if (e.condition.nonEmpty) e.condition else OfKind.getOrElse(e.kind, "FAILURE")

  private def typed(e: BinshiftException): String = compact(render(
      ("kind" -> e.kind) ~ ("condition" -> e.condition) ~ ("parameters" -> e.json) ~ ("message" -> e.detail)))
}
