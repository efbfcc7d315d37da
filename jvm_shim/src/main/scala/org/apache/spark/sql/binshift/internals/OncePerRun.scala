package org.apache.spark.sql.binshift.internals

import java.util.UUID
import java.util.concurrent.ConcurrentHashMap

import scala.jdk.CollectionConverters._

/**
 * What the driver keeps of each run of a query, made once, by whoever asks first.
 *
 * Making it may read the checkpoint, which may not answer. Whoever else wants that of the same run waits for it then, and
 * nobody else does: no lock that runs share is held meanwhile, not even one that a map would hold for some of its keys.
 *
 * Thread-safe.
 */
private[binshift] final class OncePerRun[T] {
  private val entries = new ConcurrentHashMap[UUID, Entry]()

  /** @param make if it fails, the next one who asks tries again */
  def of(runId: UUID)(make: => T): T = {
    val entry = entries.computeIfAbsent(runId, _ => new Entry)
    entry.synchronized {
      if (entry.made.isEmpty) entry.made = Some(make)
      entry.made.get
    }
  }

  /** Waits for nothing: what is still being made is not known. */
  def known(runId: UUID): Option[T] = Option(entries.get(runId)).flatMap(_.made)

  def all: Seq[T] = entries.values.asScala.flatMap(_.made).toSeq

  def remove(runId: UUID): Unit = entries.remove(runId)

  private final class Entry {
    @volatile var made: Option[T] = None
  }
}
