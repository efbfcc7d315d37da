package org.apache.spark.sql.execution.streaming.state.binshift.checkpoint

import java.io.FileNotFoundException

import scala.collection.mutable

import org.apache.spark.SparkException
import org.apache.spark.sql.execution.streaming.state.RocksDBFileManager

/**
 * Under checkpoint format 2, the ids of a store's versions, also of those that Spark has purged from the commit log.
 *
 * Relies on Spark: each changelog says which versions led to it, back to the snapshot that was there when it was written.
 *
 * Used by one thread at a time; reads changelogs only as far back as it is asked.
 *
 * @param files those of the store
 * @param ids   what is known, and becomes known
 */
private[binshift] final class Lineage(
    files: RocksDBFileManager, ids: mutable.TreeMap[Long, String] = mutable.TreeMap.empty) {

  def knows(version: Long): Boolean = ids.contains(version)

  /** The commit log has `version` with this id. */
  def add(version: Long, id: String): Unit = ids(version) = id

  /** The id of `version`, if it led to one that is known. */
  def id(version: Long): Option[String] = {
    var isExhausted = false
    while (!ids.contains(version) && !isExhausted) {
      val size = ids.size
      ids.minAfter(version).foreach { case (later, id) => read(later, id) }
      isExhausted = ids.size == size
    }
    ids.get(version)
  }

  private def read(version: Long, id: String): Unit =
    try {
      val reader = files.getChangelogReader(version, Some(id))
      try reader.lineage.foreach(item => ids.getOrElseUpdate(item.version, item.checkpointUniqueId))
      finally reader.closeIfNeeded()
    } catch {
      // A partition that began empty has a snapshot of its first version, and no changelog.
      case _: FileNotFoundException =>
      case e: SparkException if e.getCause.isInstanceOf[FileNotFoundException] =>
    }
}
