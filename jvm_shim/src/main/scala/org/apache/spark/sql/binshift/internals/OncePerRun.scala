package org.apache.spark.sql.binshift.internals

import java.util.UUID
import java.util.concurrent.ConcurrentHashMap

import scala.jdk.CollectionConverters._

/**
 * Holds an object for each run of a query, which is created for the first caller who asks.
 *
 * Creating it may read the checkpoint, which may not answer. Other callers that want the object of the same run then wait for it,
 * but callers of other runs don't: no lock that runs share is held meanwhile, not even one that a map would hold for some of its
 * keys.
 *
 * Thread-safe.
 */
private[binshift] final class OncePerRun[T] {
  private val entries = new ConcurrentHashMap[UUID, Entry]()

  /** @param make creates the object; if it fails, the next caller tries again */
  def of(runId: UUID)(make: => T): T = {
    val entry = entries.computeIfAbsent(runId, _ => new Entry)
    entry.synchronized {
      if (entry.made.isEmpty) entry.made = Some(make)
      entry.made.get
    }
  }

  /** The object if it exists already; waits for nothing. */
  def known(runId: UUID): Option[T] = Option(entries.get(runId)).flatMap(_.made)

  def all: Seq[T] = entries.values.asScala.flatMap(_.made).toSeq

  def remove(runId: UUID): Unit = entries.remove(runId)

  private final class Entry {
    @volatile var made: Option[T] = None
  }
}
