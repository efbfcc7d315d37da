package org.apache.spark.sql.execution.streaming.state.binshift.routing

import org.apache.spark.sql.execution.streaming.state.binshift.BinshiftException
import org.apache.spark.sql.execution.streaming.state.binshift.checkpoint.EntryName

/**
 * Tells who owned which bin, by following the entries from one that was in force back to the first. Each entry names the one that it
 * follows.
 *
 * Epoch v - 1 produces version v. So the table in force at v - 1 says who has which bin in version v, and bins that arrive with the
 * switch at epoch e are in versions from e + 1 on.
 *
 * Each entry has a position, which is one less than the position of the entry that follows it. Entries are read only as far back as
 * somebody asks, so older ones may have been pruned, and a long history costs nothing.
 *
 * Thread-safe. All stores of an executor that recover at the same time share it, so that each entry is read once.
 *
 * @param known the newest entry, at position 0, and some before it, newest first
 * @param read  reads an entry; `None` if it doesn't exist
 */
private[binshift] final class Owners(known: Vector[RoutingEntry], read: EntryName => Option[RoutingEntry]) {
  @volatile private var entries = known

  def newest: RoutingEntry = entries.head

  /** The same, with an entry that follows the newest one. */
  def followedBy(entry: RoutingEntry): Owners = new Owners(entry +: entries, read)

  /** The position of the table that applies to the content of `version`; `None` if there is none, or it has been deleted. */
  def find(version: Long): Option[Int] =
    Iterator.from(0).map(back => entryAt(-back).map(-back -> _)).takeWhile(_.isDefined).flatten
      .collectFirst { case (position, entry) if entry.epoch < version => position }

  /** The entry in force at `epoch`; `None` if there is none, or it has been deleted. */
  def upTo(epoch: Long): Option[RoutingEntry] = find(epoch + 1).map(entry)

  /** Like `find`, but fails if there is none. */
  def at(version: Long): Int = find(version).getOrElse(throw Owners.missing(version - 1))

  def table(position: Int): RoutingTable = entry(position).table

  /** The epoch at which the table at `position` came into force. */
  def epoch(position: Int): Long = entry(position).epoch

  /** True if a table was in force before the one at `position`. */
  def isAfterAnother(position: Int): Boolean = entry(position).previous.isDefined

  /** True if there was nothing before the table at `position`. */
  def isFirst(position: Int): Boolean = entry(position).epoch == 0 && entry(position).step.isEmpty && !isAfterAnother(position)

  /**
   * True if any of the wanted bins came to or left `partition` at an epoch from `first` to `last`. Also true if that isn't known,
   * because the entry before has been deleted.
   */
  def changed(partition: Int, first: Long, last: Long, isWanted: Int => Boolean): Boolean =
    since(first).filter { case (_, entry) => entry.epoch <= last }.exists { case (position, entry) =>
      entryAt(position - 1).fold(!isFirst(position)) { before =>
        val (old, now) = (before.table.owners, entry.table.owners)
        old.indices.exists(bin => isWanted(bin) && (old(bin) == partition) != (now(bin) == partition))
      }
    }

  /** The entries of epochs from `first` on, newest first, with their positions. Fails if one of them is missing. */
  def since(first: Long): Iterator[(Int, RoutingEntry)] =
    // The name of the entry before contains its epoch.
    Iterator.iterate(0)(_ - 1).takeWhile(p => p == 0 || entry(p + 1).previous.exists(_.epoch >= first)).map(p => p -> entry(p))
      .dropWhile(_._2.epoch < first)

  /** The positions of tables that replaced another one at epoch `first` or later, ascending. */
  def changes(first: Long): Seq[Int] = since(first).map(_._1).filter(isAfterAnother).toSeq.reverse

  def entry(position: Int): RoutingEntry =
    entryAt(position).getOrElse(throw Owners.missing(entries.last.previous.fold(-1L)(_.epoch)))

  /** The entry at `position`; `None` if there is none, or it has been deleted. */
  def entryAt(position: Int): Option[RoutingEntry] = entries.lift(-position).orElse(synchronized {
    while (entries.size <= -position && entries.last.previous.flatMap(read).map(entries :+= _).isDefined) {}
    entries.lift(-position)
  })
}

private[binshift] object Owners {

  def missing(epoch: Long): BinshiftException = BinshiftException("ROUTING_LOG_DAMAGED", "epoch" -> epoch).configuration(
    s"the routing log has no entry for epoch $epoch; restore <checkpoint>/binshift/routing from a copy of the checkpoint")
}
