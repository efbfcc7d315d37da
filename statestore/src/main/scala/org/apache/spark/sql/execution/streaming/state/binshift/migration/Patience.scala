package org.apache.spark.sql.execution.streaming.state.binshift.migration

import scala.collection.mutable

/**
 * How long sources have been asked in vain: the time for which bins of them were waited for since something of them came last. It
 * goes on from one wait to the next, so that those of a machine that does not answer are not waited for one after the other.
 *
 * Used by the store's task.
 */
private[migration] final class Patience(timeoutMs: Long) {
  import Patience._

  private val silences = mutable.Map.empty[Int, Silence]

  /** The source was asked for so long, and so many bytes of it have come in all. */
  def asked(source: Int, bytes: Long, ns: Long): Unit =
    silences(source) = silences.get(source).filter(_.bytes == bytes).fold(Silence(bytes, 0))(s => s.copy(ns = s.ns + ns))

  /** Whether nothing has come for so long that it is high time to ask others, too. */
  def isLow(source: Int): Boolean = leftNs(source) < timeoutMs * 1000000L * 3 / 4

  /** Whether nothing more is waited for. */
  def isOver(source: Int): Boolean = leftNs(source) <= 0

  def clear(): Unit = silences.clear()

  private def leftNs(source: Int): Long = timeoutMs * 1000000L - silences.get(source).fold(0L)(_.ns)
}

private object Patience {
  private final case class Silence(bytes: Long, ns: Long)
}
