package org.apache.spark.sql.binshift.internals

import scala.util.control.NonFatal

import org.apache.spark.internal.Logging

/** For work that a query can do without. */
private[binshift] trait OrWarn extends Logging {

  /** Does `work`. If it fails, logs `text`, which says what follows from that. */
  protected final def orWarn(text: => String)(work: => Unit): Unit =
    try work
    catch { case NonFatal(e) => logWarning(text, e) }
}
