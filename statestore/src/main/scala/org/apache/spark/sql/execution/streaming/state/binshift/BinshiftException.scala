package org.apache.spark.sql.execution.streaming.state.binshift

import org.json4s.{JInt, JObject, JString}
import org.json4s.jackson.JsonMethods.{compact, render}

/**
 * A failure that is reported to the user. `kind` is the name of the Python class that
 * [[binshift.errors]] raises for it, so that both languages share one hierarchy.
 *
 * @param condition what is wrong, by an id that does not change; empty if `kind` says it all
 */
final class BinshiftException(
    val kind: String, val condition: String, parameters: Seq[(String, Any)], message: String, cause: Throwable = null)
  extends RuntimeException(BinshiftException.text(kind, condition, message), cause) {

  /** The message without the prefix that names kind and condition, and without the link behind it. */
  def detail: String = message

  /** The values that the message names, as they go to Python. */
  def json: JObject = JObject(parameters.map {
    case (name, n: Int) => name -> JInt(n)
    case (name, n: Long) => name -> JInt(n)
    case (name, value) => name -> JString(value.toString)
  }.toList)

  def parametersJson: String = compact(render(json))
}

/** Failures that have no condition but that of their kind. */
private[sql] object BinshiftException extends Failures("") {

  /** Failures of a condition, each of which has a row in docs/errors.md. */
  def apply(condition: String, parameters: (String, Any)*): Failures = new Failures(condition, parameters: _*)

  /** The first binshift failure in the chain of causes of `error`, if there is one. */
  def find(error: Throwable): Option[BinshiftException] =
    Iterator.iterate(error)(_.getCause).takeWhile(_ != null).take(MaxCauses).collectFirst {
      case e: BinshiftException => e
    }

  /** The link has a line of its own, so that the first line is the message and nothing else. */
  private def text(kind: String, condition: String, message: String): String = {
    val name = if (condition.isEmpty) kind else s"$kind.$condition"
    s"[binshift.$name] $message\nSee $Site/errors.html#$name"
  }

  /** Where the site of the documentation is; Python's `errors.SITE`. */
  private val Site = "https://binshift.github.io/binshift"

  /** Bound on the chain that is searched: a cause may, through a bug elsewhere, lead to itself. */
  private val MaxCauses = 64
}

/** Makes failures of one condition, by what they are to Python. */
private[sql] sealed class Failures(condition: String, parameters: (String, Any)*) {
  def configuration(message: String, cause: Throwable = null): BinshiftException =
    of("ConfigurationError", message, cause)

  def plan(message: String): BinshiftException = of("PlanError", message)

  def migration(message: String, cause: Throwable = null): BinshiftException = of("MigrationError", message, cause)

  def unsupportedOperator(message: String): BinshiftException = of("UnsupportedOperatorError", message)

  def unsupportedVersion(message: String): BinshiftException = of("UnsupportedVersionError", message)

  /** What is wrong with nobody's input: a disk that is full, an executor that is lost once too often. */
  def failure(message: String, cause: Throwable): BinshiftException = of("BinshiftError", message, cause)

  private def of(kind: String, message: String, cause: Throwable = null): BinshiftException =
    new BinshiftException(kind, condition, parameters, message, cause)
}
