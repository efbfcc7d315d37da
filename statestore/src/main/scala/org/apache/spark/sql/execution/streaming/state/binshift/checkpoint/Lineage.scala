package org.apache.spark.sql.execution.streaming.state.binshift.checkpoint

import java.io.FileNotFoundException

import scala.collection.mutable

import org.apache.spark.SparkException
import org.apache.spark.sql.execution.streaming.state.{LineageItem, RocksDBFileManager}

/**
 * Under checkpoint format 2, the ids of a store's versions, including those that Spark has purged from the commit log.
 *
 * Relies on Spark: each changelog says which versions led to it, back to the newest snapshot at the time when it was written.
 *
 * Used by one thread at a time. Reads changelogs only as far back as somebody asks, and each of them once.
 *
 * @param readLog reads what the changelog of a version and id says; empty if there is no such changelog
 * @param ids     the ids that are known; ids are added as they are found
 */
private[binshift] final class Lineage(
    readLog: (Long, String) => Seq[LineageItem], ids: mutable.TreeMap[Long, String] = mutable.TreeMap.empty) {
  private val read = mutable.Map.empty[Long, Seq[LineageItem]]

  def knows(version: Long): Boolean = ids.contains(version)

  /** Adds an id from the commit log. */
  def add(version: Long, id: String): Unit = ids(version) = id

  /** The id of `version`, if a known version goes back to it. */
  def id(version: Long): Option[String] = {
    def next = if (knows(version)) None else ids.minAfter(version).filterNot { case (later, _) => read.contains(later) }
    Iterator.continually(next).takeWhile(_.isDefined).flatten.foreach { case (later, _) => namedBy(later) }
    ids.get(version)
  }

  /** The versions that the changelog of `version` says have led to it; none if the id of `version` isn't known. */
  def namedBy(version: Long): Seq[LineageItem] =
    ids.get(version).fold(Seq.empty[LineageItem])(id =>
      read.getOrElseUpdate(version, {
          val named = readLog(version, id)
          named.foreach(item => ids.getOrElseUpdate(item.version, item.checkpointUniqueId))
          named
        }))

  /** Forgets versions before `version`, which nobody will ask for any more. */
  def forget(version: Long): Unit = {
    ids.filterInPlace((v, _) => v >= version)
    read.filterInPlace((v, _) => v >= version)
  }
}

private[binshift] object Lineage {
  /** Reads the lineage from the changelogs of a store. */
  def in(files: RocksDBFileManager)(version: Long, id: String): Seq[LineageItem] =
    try {
      val reader = files.getChangelogReader(version, Some(id))
      try reader.lineage.toSeq
      finally reader.closeIfNeeded()
    } catch {
      // A partition that began empty has a snapshot of its first version, and no changelog.
      case _: FileNotFoundException => Nil
      case e: SparkException if e.getCause.isInstanceOf[FileNotFoundException] => Nil
    }
}
