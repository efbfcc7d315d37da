package org.apache.spark.sql.execution.streaming.state.binshift

import scala.util.control.NonFatal

import org.apache.spark.internal.Logging

/** For work that a query can do without. */
private[sql] trait OrWarn extends Logging {

  /** Does `work`. If it fails, logs `text`, which says what follows from that. */
  protected final def orWarn(text: => String)(work: => Unit): Unit = orWarn(text, ())(work)

  /** Returns the result of `work`, or `otherwise` if it fails. */
  protected final def orWarn[T](text: => String, otherwise: => T)(work: => T): T =
    try work
    catch {
      case NonFatal(e) =>
        logWarning(text, e)
        otherwise
    }
}
