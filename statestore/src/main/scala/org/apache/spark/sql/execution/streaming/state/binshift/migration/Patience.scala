package org.apache.spark.sql.execution.streaming.state.binshift.migration

import scala.collection.mutable

/**
 * Measures how long each source has been asked in vain: the time spent waiting for its bins since anything last came from it. The time
 * adds up over several waits, so that a task doesn't wait for each of several sources on a machine that doesn't answer.
 *
 * Used by the store's task.
 */
private[migration] final class Patience(timeoutMs: Long) {
  import Patience._

  private val silences = mutable.Map.empty[Int, Silence]

  /** Notes that the source was asked for `ns`, and has sent `bytes` in all. */
  def asked(source: Int, bytes: Long, ns: Long): Unit =
    silences(source) = silences.get(source).filter(_.bytes == bytes).fold(Silence(bytes, 0))(s => s.copy(ns = s.ns + ns))

  /** True if nothing has come for so long that other sources should be asked, too. */
  def isLow(source: Int): Boolean = leftNs(source) < timeoutMs * 1000000L * 3 / 4

  /** True if it is in vain to wait any longer. */
  def isOver(source: Int): Boolean = leftNs(source) <= 0

  def clear(): Unit = silences.clear()

  private def leftNs(source: Int): Long = timeoutMs * 1000000L - silences.get(source).fold(0L)(_.ns)
}

private object Patience {
  private final case class Silence(bytes: Long, ns: Long)
}
