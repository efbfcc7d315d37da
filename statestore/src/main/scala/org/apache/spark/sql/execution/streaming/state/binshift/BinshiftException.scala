package org.apache.spark.sql.execution.streaming.state.binshift

/**
 * A failure that is reported to the user. `kind` is the name of the Python class that
 * [[binshift.errors]] raises for it, so that both languages share one hierarchy.
 */
final class BinshiftException(val kind: String, message: String, cause: Throwable = null)
  extends RuntimeException(s"[binshift.$kind] $message", cause) {

  /** The message without the prefix that names the kind. */
  def detail: String = message
}

private[sql] object BinshiftException {
  def configuration(message: String, cause: Throwable = null): BinshiftException =
    new BinshiftException("ConfigurationError", message, cause)

  def plan(message: String): BinshiftException = new BinshiftException("PlanError", message)

  def migration(message: String, cause: Throwable = null): BinshiftException =
    new BinshiftException("MigrationError", message, cause)

  def unsupportedOperator(message: String): BinshiftException =
    new BinshiftException("UnsupportedOperatorError", message)

  def unsupportedVersion(message: String): BinshiftException =
    new BinshiftException("UnsupportedVersionError", message)

  /** What is wrong with nobody's input: a disk that is full, an executor that is lost once too often. */
  def failure(message: String, cause: Throwable): BinshiftException =
    new BinshiftException("BinshiftError", message, cause)

  /** The first binshift failure in the chain of causes of `error`, if there is one. */
  def find(error: Throwable): Option[BinshiftException] =
    Iterator.iterate(error)(_.getCause).takeWhile(_ != null).take(MaxCauses).collectFirst {
      case e: BinshiftException => e
    }

  /** Bound on the chain that is searched: a cause may, through a bug elsewhere, lead to itself. */
  private val MaxCauses = 64
}
