package org.apache.spark.sql.execution.streaming.state.binshift.migration

import scala.collection.mutable
import scala.util.control.NonFatal

import org.apache.spark.internal.Logging
import org.apache.spark.sql.execution.streaming.state.binshift.routing.TouchedBins
import org.apache.spark.sql.execution.streaming.state.binshift.shipping._

/**
 * The bins that a partition owns and does not hold yet, since they come on demand: the first access to
 * a bin waits for it, a scan for all, and each load takes in what has come in between. Who waits for a bin asks for all that
 * the rows at hand touch, with one request to each old owner.
 *
 * Logically the partition adopted all of them at the switch: recovery does, and a snapshot is only made
 * when all are here. Used by the store's task.
 *
 * @param adopt     takes in a number of copied bins, of which a number was copied from the checkpoint
 * @param readRest  reads bins of a source as of a version from its checkpoint
 */
private[binshift] final class PendingBins(
    conf: BackgroundConf,
    adopt: (Int, Int, TakenCopy) => Unit,
    readRest: (Long, Int, Seq[Int]) => Unit) extends Logging {

  private val absent = mutable.Map.empty[Int, Absent]

  /** Number of bins that are not here. On the path of each access. */
  var missing = 0

  /** `bins` come from `source` as of `version`, through `staged`. */
  def expect(version: Long, source: Int, bins: Seq[Int], staged: StagedBins): Unit = {
    bins.foreach(b => absent(b) = Absent(version, source, staged))
    missing = absent.size
  }

  /** Everything was loaded from the checkpoint. */
  def clear(): Unit = {
    absent.clear()
    missing = 0
  }

  /** Waits for `bin`, which its old owner then sends before others. */
  def require(bin: Int): Unit = if (absent.contains(bin)) require(bin, TouchedBins.ofTask)

  def requireAll(): Unit = if (absent.nonEmpty) {
    val all = absent.keySet.toSet
    all.toSeq.sorted.foreach(bin => if (absent.contains(bin)) require(bin, all))
  }

  private def require(bin: Int, touched: Set[Int]): Unit = {
    val deadline = System.nanoTime() + conf.timeoutMs * 1000000L
    pull()
    if (absent.contains(bin)) request(bin, touched)
    while (absent.contains(bin)) {
      val from = absent(bin)
      from.copy match {
        case Some(copy) if !copy.isGone(bin) && System.nanoTime() < deadline =>
          Thread.sleep(StagedBins.PollMs)
          pull()
        case _ => readAllOf(from)
      }
    }
  }

  /**
   * Asks for what is touched from `bin` on, of all old owners, since rows come in the order of bins; then for what is left
   * of an earlier run.
   */
  private def request(bin: Int, touched: Set[Int]): Unit = {
    val (before, after) = (touched + bin).filter(absent.contains).toSeq.sorted.partition(_ < bin)
    (after ++ before).groupBy(absent(_).copy).foreach { case (copy, bins) => copy.foreach(_.request(bins)) }
  }

  /** Takes in what is here by now, at once: the database may have to write out what is in memory first. */
  def pull(): Unit = if (absent.nonEmpty) {
    // Of these there will be no copy, and who touches no other of their bins would wait for ever.
    absent.values.toSeq.filter(_.copy.isEmpty).distinctBy(from => (from.version, from.source)).foreach(readAllOf)
    val here = for {
      from <- absent.values.toSeq.distinctBy(_.source)
      copy <- from.copy.toSeq
      (bins, taken) <- copy.takeReady()
    } yield (bins, taken, if (copy.wasShipped) 0 else bins.size)
    if (here.nonEmpty) {
      val bins = here.flatMap(_._1)
      val files = TakenCopy(here.flatMap(_._2.base), None, here.map(_._2.rows).reduce(_ + _), here.head._2.version)
      try {
        adopt(bins.size, here.map(_._3).sum, files)
        bins.foreach(drop)
      } catch {
        case NonFatal(e) => logWarning(s"bins ${bins.mkString(", ")} could not be taken in; they are read from the checkpoint", e)
      }
    }
  }

  private def readAllOf(from: Absent): Unit = {
    val bins = absent.collect { case (bin, Absent(from.version, from.source, _)) => bin }.toSeq
    readRest(from.version, from.source, bins)
    bins.foreach(drop)
  }

  private def drop(bin: Int): Unit = {
    absent -= bin
    missing = absent.size
  }
}

private final case class Absent(version: Long, source: Int, staged: StagedBins) {
  def copy: Option[StagedCopy] = staged.copyOnTheWay(source)
}
