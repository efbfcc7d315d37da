package org.apache.spark.sql.binshift.migration

import scala.collection.mutable

/**
 * Decides which executors keep the files of which partitions, in case the partition's own executor dies.
 *
 * Each standby is on an executor that has no store of its partition, on another host if there is one. Executors have about equally many
 * standbys, and the standbys of one executor's partitions are spread over the others, so that its death makes work for all of them. A
 * standby stays where it is, unless that is no longer possible, or the executor has two more than another.
 */
private[binshift] object StandbyPlan {

  /**
   * @param primaries the executors that have stores of each partition; empty if it hasn't run
   * @param current   where the standbys are now
   * @param hosts     hosts of the executors that may have standbys
   * @param count     number of standbys of each partition
   * @return the executors with standbys, best place first, of each partition
   */
  def of(
      primaries: IndexedSeq[Set[String]], current: Map[Int, Seq[String]], hosts: Map[String, String], count: Int)
      : Map[Int, Seq[String]] = {
    val executors = new StandbyLoads(hosts)
    val known = primaries.indices.filter(primaries(_).nonEmpty)
    val kept = known.map { p =>
      p -> current.getOrElse(p, Nil).distinct.foldLeft(Seq.empty[String]) { (stay, executor) =>
        if (stay.size < count && executors.mayStay(primaries(p), stay, executor)) {
          executors.add(primaries(p), executor)
          stay :+ executor
        } else stay
      }
    }
    val filled = kept.map { case (p, stays) =>
      p -> (stays.size until count).foldLeft(stays) { (places, _) =>
        val best = executors.best(primaries(p), places)
        best.foreach(executors.add(primaries(p), _))
        places ++ best
      }
    }
    // Gives executors that have joined their share.
    filled.map { case (p, places) => p -> places.map(e => executors.evened(primaries(p), places, e)) }
      .filter(_._2.nonEmpty).toMap
  }
}

/** Counts the standbys of each executor while a plan is made. Not thread-safe. */
private final class StandbyLoads(hosts: Map[String, String]) {
  private val ids = hosts.keys.toArray.sorted
  private val places = ids.map(hosts)
  private val indices = ids.zipWithIndex.toMap
  private val loads = new Array[Int](ids.length)
  /** For each executor, how many of its partitions have their standby on each of the others. */
  private val pairs = mutable.Map.empty[String, Array[Int]]

  def add(primaries: Set[String], executor: String): Unit = change(primaries, executor, 1)

  private def change(primaries: Set[String], executor: String, by: Int): Unit = {
    loads(indices(executor)) += by
    primaries.foreach(p => pairs.getOrElseUpdate(p, new Array[Int](ids.length))(indices(executor)) += by)
  }

  def mayStay(primaries: Set[String], taken: Seq[String], executor: String): Boolean =
    indices.get(executor).exists { e =>
      lazy val near = nearTo(primaries, taken)
      !primaries(executor) && !taken.contains(executor) &&
      (!near(places(e)) || !best(primaries, taken).exists(other => !near(hosts(other))))
    }

  /** The executor to which a standby on `executor` should move if that has too many; otherwise `executor`. */
  def evened(primaries: Set[String], taken: Seq[String], executor: String): String = {
    val others = taken.filter(_ != executor)
    val near = nearTo(primaries, others)
    best(primaries, taken).filter { other =>
      loads(indices(executor)) - loads(indices(other)) > 1 && (!near(hosts(other)) || near(hosts(executor)))
    }.fold(executor) { other =>
      change(primaries, executor, -1)
      change(primaries, other, 1)
      other
    }
  }

  /** The executor for one more standby of a partition, if there is any. */
  def best(primaries: Set[String], taken: Seq[String]): Option[String] = {
    val near = nearTo(primaries, taken)
    val work = primaries.toSeq.flatMap(pairs.get)
    var found = -1
    var least = (true, 0, 0)
    ids.indices.foreach { e =>
      if (!primaries(ids(e)) && !taken.contains(ids(e))) {
        val cost = (near(places(e)), loads(e), work.map(_(e)).sum)
        if (found < 0 || Ordering[(Boolean, Int, Int)].lt(cost, least)) {
          found = e
          least = cost
        }
      }
    }
    Option.when(found >= 0)(ids(found))
  }

  /** The hosts to avoid. The host of an executor that is gone isn't known, so no other executor counts as being near it. */
  private def nearTo(primaries: Set[String], taken: Seq[String]): Set[String] = (primaries ++ taken).flatMap(hosts.get)
}
