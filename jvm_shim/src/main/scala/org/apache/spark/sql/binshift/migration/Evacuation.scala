package org.apache.spark.sql.binshift.migration

import org.apache.spark.internal.Logging
import org.apache.spark.sql.binshift.routing.RunState
import org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution
import org.apache.spark.sql.execution.streaming.state.binshift.{LogLine, Trace}
import org.apache.spark.sql.binshift.internals.SparkInternals

/**
 * Makes partitions leave executors that Spark decommissions, without a call by the user.
 *
 * A decommissioned executor gets no more tasks, so its partitions run elsewhere from the next epoch on anyway. But by default
 * Spark waits `spark.locality.wait` for it, and then takes whichever executor is free. Here, each partition gets the executor of
 * its standby or, without one, a live executor with few partitions, which gets a standby now if the epoch under way or a pause leaves
 * time for that.
 *
 * As in [[Relocation]], a place is only a preference. A partition needs it for a single committed epoch: if Spark ran it on
 * another live executor, it stays there.
 *
 * Called under the lock of the run, except for `places` and `total`: `enter` on the stream's thread while an epoch is planned, the rest
 * by any thread.
 *
 * @param standbyOf the executors that have the files of a partition
 */
private[migration] final class Evacuation(
    query: MicroBatchExecution, run: RunState, standbyOf: Int => Seq[String]) extends Logging {
  private val session = query.sparkSession

  @volatile private var placed = Map.empty[Int, WantedPlace]
  /** Decommissioned executors whose partitions have got another place. */
  @volatile private var emptied = Set.empty[String]
  /** Executors for which it was logged that no other executor can take their partitions. */
  private var lamented = Set.empty[String]
  @volatile private var count = 0L

  /** Where partitions are about to move. */
  def places: Map[Int, WantedPlace] = placed

  /** The number of partitions that have left so far, or are about to. */
  def total: Long = count

  /**
   * True if an executor is decommissioned whose partitions have no other place yet. Makes no request: the scheduler has this in
   * memory.
   */
  def isDue: Boolean = (Executors.decommissioned(session.sparkContext) -- emptied).nonEmpty

  /**
   * Gives the partitions of decommissioned executors another place.
   *
   * @param avoided executors on which nothing should be placed
   * @param fetches whether there is time for the new executors to fetch the files before the next epoch
   */
  def look(avoided: Set[String], fetches: Boolean): Unit = {
    val leaving = Executors.decommissioned(session.sparkContext)
    emptied = emptied.intersect(leaving)
    val news = leaving -- emptied
    if (news.nonEmpty || placed.nonEmpty) {
      val executors = Executors.of(session.sparkContext)
      val targets = executors.live.keys.toSeq.filterNot(avoided)
      val (kept, lost) = placed.partition { case (p, place) => p < run.now.partitions && executors.live.contains(place.executor) }
      if (targets.isEmpty) lament(news)
      else if (news.nonEmpty || lost.nonEmpty) {
        placed = kept
        emptied ++= news
        lamented = lamented.intersect(leaving)
        place(leaving, lost.keySet, targets, fetches)
      }
    }
  }

  /**
   * Tells Spark where partitions should run at `epoch`, whose tasks have not begun.
   *
   * @param others partitions that a migration has placed at this epoch
   */
  def enter(epoch: Long, avoided: Set[String], others: Set[Int]): Unit = {
    look(avoided, fetches = false)
    if (placed.nonEmpty) {
      val executors = Executors.of(session.sparkContext)
      // In an epoch that was under way, Spark may have run some partitions wherever an executor was free.
      placed = placed.filterNot { case (p, place) => place.askedAt.exists(_ < epoch) || isSettled(p, executors) }
      placed = placed.map { case (p, place) =>
        if (!others(p))
          executors.live.get(place.executor).foreach(Placement.prefer(session, run.now.operators, p, place.executor, _))
        p -> place.copy(askedAt = Some(epoch))
      }
    }
  }

  private def isSettled(partition: Int, executors: Executors): Boolean = {
    val places = Placement.executorsOf(session, run.now.operators, partition)
    places.nonEmpty && places.forall(executors.live.contains)
  }

  /** @param lost partitions whose new executor is gone as well */
  private def place(leaving: Set[String], lost: Set[Int], targets: Seq[String], fetches: Boolean): Unit = {
    val (operators, n) = (run.now.operators, run.now.partitions)
    val places = Placement.placesOf(session, operators, n)
    val stranded = (0 until n).filter(p => !placed.contains(p) && (lost(p) || places(p).exists(leaving)))
    val others = (0 until n).filterNot(stranded.contains)
      .map(p => placed.get(p).map(place => Seq(place.executor)).getOrElse(places(p).toSeq))
    val found = Placement.spread(stranded, targets, others, standbyOf)
    placed ++= found.map { case (p, executor) => p -> WantedPlace(executor, isFetched = fetches) }
    count += found.count { case (p, _) => !lost(p) }
    if (Trace.isOn) Trace("evacuation", SparkInternals.controlDir(query).checkpoint, "partitions" -> found.map(_._1),
      "epoch" -> operators.headOption.map(_.getStateInfo.storeVersion))
    logInfo(LogLine("evacuation", "query" -> query.id, "executors" -> leaving.toSeq.sorted.mkString(","),
        "partitions" -> found.size, "to" -> found.map(_._2).distinct.sorted.mkString(",")))
  }

  private def lament(leaving: Set[String]): Unit = if ((leaving -- lamented).nonEmpty) {
    lamented ++= leaving
    logWarning(s"query ${query.id}: Spark decommissions executors ${leaving.toSeq.sorted.mkString(", ")}, and no " +
      "other executor can take their partitions; add an executor, which gets them as soon as it joins")
  }
}
