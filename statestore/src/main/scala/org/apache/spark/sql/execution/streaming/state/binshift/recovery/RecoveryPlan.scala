package org.apache.spark.sql.execution.streaming.state.binshift.recovery

import scala.collection.mutable

import org.apache.spark.sql.execution.streaming.state.binshift.BinshiftException
import org.apache.spark.sql.execution.streaming.state.binshift.routing.Owners

/** The snapshot of a partition at a version. */
private[binshift] final case class Snapshot(partition: Int, version: Long)

/** Versions `first` to `last` of a partition, whose changelogs are read. */
private[binshift] final case class Stretch(partition: Int, first: Long, last: Long)

/**
 * Says from which files the rows of some bins can be recovered.
 *
 * The base of each bin is the newest snapshot of one of its owners. From there on, there is one changelog per version, that of the
 * bin's owner at that time. So the files to load don't depend on how often a bin moved, and no partition has to be recovered in
 * order to recover another one.
 *
 * @param bases     bins by the snapshot that they begin with; bins that begin empty are not included
 * @param stretches bins by the changelogs with their changes; no version of a bin is in two of them
 */
private[binshift] final case class RecoveryPlan(bases: Map[Snapshot, Seq[Int]], stretches: Map[Stretch, Seq[Int]]) {

  def without(bins: Set[Int]): RecoveryPlan = {
    def rest[K](of: Map[K, Seq[Int]]): Map[K, Seq[Int]] =
      of.view.mapValues(_.filterNot(bins)).filter(_._2.nonEmpty).toMap
    RecoveryPlan(rest(bases), rest(stretches))
  }

  /** The oldest version up to `last` of which a file of `partition` is read. */
  def oldest(partition: Int, last: Long): Option[Long] =
    (bases.keysIterator.filter(_.partition == partition).map(_.version) ++
      stretches.keysIterator.filter(_.partition == partition).map(_.first)).filter(_ <= last).minOption

  /** The stretches whose changelogs Spark doesn't replay when it loads `partition` with the snapshot of version `held`. */
  def foreign(partition: Int, held: Option[Long]): Map[Stretch, Seq[Int]] =
    stretches.filterNot { case (s, _) => s.partition == partition && held.exists(s.first > _) }

  /** Combines two plans that have no bins in common. */
  def ++(other: RecoveryPlan): RecoveryPlan = {
    def both[K](a: Map[K, Seq[Int]], b: Map[K, Seq[Int]]): Map[K, Seq[Int]] =
      (a.toSeq ++ b).groupMapReduce(_._1)(_._2)(_ ++ _)
    RecoveryPlan(both(bases, other.bases), both(stretches, other.stretches))
  }
}

private[binshift] object RecoveryPlan {
  /**
   * The plan for `bins`, which `partition` owns at `version`.
   *
   * @param newest the newest snapshot of a partition at or before a version
   */
  def of(
      bins: Seq[Int], partition: Int, version: Long, owners: Owners, newest: (Int, Long) => Option[Long]): RecoveryPlan = {
    val bases = mutable.Map.empty[Snapshot, Vector[Int]].withDefaultValue(Vector.empty)
    val stretches = mutable.Map.empty[Stretch, Vector[Int]].withDefaultValue(Vector.empty)
    val known = mutable.Map.empty[(Int, Long), Option[Long]]

    def trace(bin: Int, owner: Int, last: Long): Unit = {
      val snapshot = known.getOrElseUpdate((owner, last), newest(owner, last))
      var position = owners.at(last)
      // Goes back to the table by which the bin came to its owner, or to the snapshot if that is later.
      def cameBefore = owners.isAfterAnother(position) && owners.table(position - 1).owner(bin) == owner
      while (!snapshot.exists(_ > owners.epoch(position)) && cameBefore) position -= 1
      val came = owners.epoch(position)
      snapshot.filter(_ > came) match {
        case Some(base) =>
          bases(Snapshot(owner, base)) :+= bin
          if (base < last) stretches(Stretch(owner, base + 1, last)) :+= bin
        case None =>
          if (came < last) stretches(Stretch(owner, came + 1, last)) :+= bin
          if (owners.isAfterAnother(position)) trace(bin, owners.table(position - 1).owner(bin), came)
          else if (!owners.isFirst(position)) throw lost(owner, last, came)
      }
    }

    if (version > 0) bins.foreach(trace(_, partition, version))
    RecoveryPlan(bases.toMap, stretches.toMap)
  }

  private def lost(partition: Int, version: Long, came: Long): BinshiftException =
    BinshiftException("ROUTING_LOG_DAMAGED", "epoch" -> came).configuration(
      s"the bins that partition $partition held at version $version cannot be recovered: the routing log begins at epoch " +
        s"$came, and the partition has no snapshot from after it; restore <checkpoint>/binshift/routing or the snapshots " +
        "from a copy of the checkpoint")
}
