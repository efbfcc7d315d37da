package org.apache.spark.sql.execution.streaming.state.binshift

import org.json4s.{JInt, JObject, JString}
import org.json4s.jackson.JsonMethods.{compact, render}

/**
 * A failure that is reported to the user. `kind` is the name of the Python class that
 * [[binshift.errors]] raises for it, so that both languages share one hierarchy.
 *
 * @param condition a stable id of what is wrong; empty if `kind` says it all
 */
final class BinshiftException(
    val kind: String, val condition: String, parameters: Seq[(String, Any)], message: String, cause: Throwable = null)
  extends RuntimeException(BinshiftException.text(kind, condition, message), cause) {

  /** The message without the prefix that names kind and condition, and without the link behind it. */
  def detail: String = message

  /** The values that the message names, in the form in which Python gets them. */
  def json: JObject = JObject(parameters.map {
    case (name, n: Int) => name -> JInt(n)
    case (name, n: Long) => name -> JInt(n)
    case (name, value) => name -> JString(value.toString)
  }.toList)

  def parametersJson: String = compact(render(json))
}

/** Failures whose kind says everything, so that they need no condition of their own. */
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

  /** Address of the documentation's site; the same as Python's `errors.SITE`. */
  private val Site = "https://binshift.github.io/binshift"

  /** Bounds the search, because a bug elsewhere may have made a chain of causes circular. */
  private val MaxCauses = 64
}

/** Makes failures of one condition; each method stands for a class of errors in Python. */
private[sql] sealed class Failures(condition: String, parameters: (String, Any)*) {
  def configuration(message: String, cause: Throwable = null): BinshiftException =
    of("ConfigurationError", message, cause)

  def plan(message: String): BinshiftException = of("PlanError", message)

  def migration(message: String, cause: Throwable = null): BinshiftException = of("MigrationError", message, cause)

  def unsupportedOperator(message: String): BinshiftException = of("UnsupportedOperatorError", message)

  def unsupportedVersion(message: String): BinshiftException = of("UnsupportedVersionError", message)

  /** A file of the state is missing or damaged. */
  def state(message: String): BinshiftException = of("StateFormatError", message)

  def storage(message: String): BinshiftException = of("StorageError", message)

  /** A failure that isn't caused by anybody's input, such as a full disk or an executor that was lost once too often. */
  def failure(message: String, cause: Throwable): BinshiftException = of("BinshiftError", message, cause)

  private def of(kind: String, message: String, cause: Throwable = null): BinshiftException =
    new BinshiftException(kind, condition, parameters, message, cause)
}
