package org.apache.spark.sql.execution.streaming.state.binshift.recovery

import scala.collection.mutable

import org.apache.spark.sql.execution.streaming.state.binshift.checkpoint.{Lineage, VersionFile}

/**
 * The snapshots of a store with which a recovery may begin: those of committed attempts. Under checkpoint format 2, an attempt that
 * wasn't committed may have left a snapshot of the same version, or of a later one.
 *
 * Both recovery and cleanup use this class, so that a recovery only needs files that are kept.
 *
 * Used by one thread at a time.
 *
 * @param listed  the files in the store's directory
 * @param lineage the ids of committed versions, under checkpoint format 2
 */
private[binshift] final class CommittedSnapshots(listed: => Seq[VersionFile], lineage: Option[Lineage]) {
  private lazy val files = listed
  private lazy val ids: Map[Long, Seq[Option[String]]] = files.filter(_.isSnapshot).groupMap(_.version)(_.id)
  private lazy val logged = files.filter(_.kind == VersionFile.Changelog).map(_.version).toSet
  private val unusable = mutable.Set.empty[Long]
  private val whole = mutable.Set.empty[Long]

  /** The newest snapshot from which one gets to `version`, which is committed; that of `version` itself if there is one. */
  def newest(version: Long): Option[Long] = committed(version).find(!unusable(_))

  /**
   * The newest of these that has all of its files. A recovery can begin with it; one that lacks files is ignored from now on.
   *
   * @param isWhole whether a snapshot has all of its files; asked once for each
   */
  def newestWhole(version: Long)(isWhole: Long => Boolean): Option[Long] = committed(version).filter(!unusable(_)).find { v =>
    if (!whole(v)) (if (isWhole(v)) whole else unusable) += v
    whole(v)
  }

  /**
   * The snapshots from which the listed changelogs lead to `version`, newest first, also those that are ignored. None is of an
   * earlier life of the partition, which may have numbered its families in another way: a partition that begins empty has no
   * changelog of its first version.
   */
  def connected(version: Long): Iterator[Long] = {
    val first = Iterator.iterate(version)(_ - 1).dropWhile(logged).next()
    committed(version).takeWhile(_ >= first)
  }

  private def committed(version: Long): Iterator[Long] = ids.keys.filter(_ <= version).toSeq.sorted.reverseIterator.filter { v =>
    lineage.fold(ids(v).contains(None))(_.id(v).exists(id => ids(v).contains(Some(id))))
  }

  /** Ignores a snapshot from now on. */
  def exclude(snapshot: Long): Unit = unusable += snapshot

  def isExcluded(snapshot: Long): Boolean = unusable(snapshot)
}
