package org.apache.spark.sql.execution.streaming.state.binshift.recovery

import scala.collection.mutable

import org.apache.spark.sql.execution.streaming.state.binshift.checkpoint.{Lineage, VersionFile}

/**
 * The snapshots of a store that a recovery may begin with: those of committed attempts. Under checkpoint format 2, an attempt that was
 * not committed may have left one of the same version, or of a later one.
 *
 * What is read and what is kept both go by this.
 *
 * Used by one thread at a time.
 *
 * @param listed  the files in the store's directory
 * @param lineage the ids of committed versions, under checkpoint format 2
 */
private[binshift] final class CommittedSnapshots(listed: => Seq[VersionFile], lineage: Option[Lineage]) {
  private lazy val ids: Map[Long, Seq[Option[String]]] = listed.filter(_.isSnapshot).groupMap(_.version)(_.id)
  private val unusable = mutable.Set.empty[Long]

  /** The newest one that led to `version`, which is committed; its own if there is one. */
  def newest(version: Long): Option[Long] =
    ids.keys.filter(v => v <= version && !unusable(v)).toSeq.sorted.reverseIterator.find { v =>
      lineage.fold(ids(v).contains(None))(_.id(v).exists(id => ids(v).contains(Some(id))))
    }

  /** Leaves one out from now on. */
  def exclude(snapshot: Long): Unit = unusable += snapshot
}
