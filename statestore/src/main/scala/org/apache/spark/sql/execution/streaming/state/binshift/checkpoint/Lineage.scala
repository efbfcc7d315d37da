package org.apache.spark.sql.execution.streaming.state.binshift.checkpoint

import java.io.FileNotFoundException

import scala.collection.mutable

import org.apache.spark.SparkException
import org.apache.spark.sql.execution.streaming.state.{LineageItem, RocksDBFileManager}

/**
 * Under checkpoint format 2, the ids of a store's versions, also of those that Spark has purged from the commit log.
 *
 * Relies on Spark: each changelog says which versions led to it, back to the snapshot that was there when it was written.
 *
 * Used by one thread at a time; reads changelogs only as far back as it is asked, and each of them once.
 *
 * @param read what the changelog of a version and id says; nothing if there is no such changelog
 * @param ids  what is known, and becomes known
 */
private[binshift] final class Lineage(
    read: (Long, String) => Seq[LineageItem], ids: mutable.TreeMap[Long, String] = mutable.TreeMap.empty) {
  private val asked = mutable.Set.empty[Long]

  def knows(version: Long): Boolean = ids.contains(version)

  /** The commit log has `version` with this id. */
  def add(version: Long, id: String): Unit = ids(version) = id

  /** The id of `version`, if it led to one that is known. */
  def id(version: Long): Option[String] = {
    def next = if (knows(version)) None else ids.minAfter(version).filterNot { case (later, _) => asked(later) }
    Iterator.continually(next).takeWhile(_.isDefined).flatten.foreach { case (later, id) =>
      read(later, id).foreach(item => ids.getOrElseUpdate(item.version, item.checkpointUniqueId))
      asked += later
    }
    ids.get(version)
  }

  /** Nobody will ask for versions before `version` any more. */
  def forget(version: Long): Unit = {
    ids.filterInPlace((v, _) => v >= version)
    asked.filterInPlace(_ >= version)
  }
}

private[binshift] object Lineage {
  /** What changelogs of a store say. */
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
