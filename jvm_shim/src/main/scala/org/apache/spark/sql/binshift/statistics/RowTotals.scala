package org.apache.spark.sql.binshift.statistics

import java.util

import scala.collection.mutable

import org.apache.spark.sql.binshift.internals.SparkInternals
import org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution
import org.apache.spark.sql.execution.streaming.state.binshift.conversion.StoreForm
import org.apache.spark.sql.execution.streaming.state.binshift.statistics.StoreRows
import org.apache.spark.util.{AccumulatorV2, CollectionAccumulator, Utils}

/**
 * How many rows the stores of each operator have after an epoch, in all partitions.
 *
 * Spark adds up what each store has. While bins come on demand, a row may be in two stores, or in none: in that of a partition that
 * is gone. So where a store does not know what it has, the total is that of the epoch before, with what the epoch has made
 * and removed. That is exact wherever rows are, and however often a store is loaded anew meanwhile. It is not known at first epochs
 * of a run, until all stores have counted.
 *
 * @param before the totals of the epoch before, as far as they are known, by operator and store
 */
private[statistics] final class RowTotals(val epoch: Long, partitions: Int, before: Map[(Long, String), Long]) {
  private val stores = mutable.Map.empty[(Long, String), StoreTotal]
  private val alreadyCorrected = mutable.Set.empty[Long]

  /** Takes in what a store says; what it says later replaces it. */
  def add(of: StoreRows): Unit =
    if (of.epoch == epoch && of.isSized && of.partition < partitions)
      stores.getOrElseUpdate((of.operator, of.store), new StoreTotal(partitions)).add(of)

  /** Those that are known, of stores of which each partition has told. */
  def totals: Map[(Long, String), Long] = for ((store, of) <- stores.toMap; total <- totalOf(store, of)) yield store -> total

  /**
   * The operators that Spark's sum is wrong of, with the number of stores that have told and their rows, once all partitions of these
   * stores have told. An operator stays among them: to what was corrected, Spark adds what tasks tell that run again.
   */
  def corrected(): Map[Long, (Int, Long)] = stores.toMap.groupBy(_._1._1).flatMap { case (operator, all) =>
    // Relies on Spark: of a join, it does not count how many values each key has.
    def sums = all.toSeq.filterNot { case ((_, store), _) => StoreForm.JoinCounts(store) }.map { case (store, of) =>
      totalOf(store, of)
    }
    val isWanted = all.values.forall(_.isComplete) && (alreadyCorrected(operator) || all.values.exists(!_.isCounted))
    Option.when(isWanted && sums.forall(_.isDefined)) {
      alreadyCorrected += operator
      operator -> (all.size, sums.flatten.sum)
    }
  }

  private def totalOf(store: (Long, String), of: StoreTotal): Option[Long] =
    if (!of.isComplete) None else if (of.isCounted) Some(of.sum(_.total.get)) else before.get(store).map(_ + of.sum(_.added))
}

/** What the partitions of one store have told. */
private final class StoreTotal(partitions: Int) {
  private val told = new Array[StoreRows](partitions)
  private var missing = partitions

  def add(of: StoreRows): Unit = {
    if (told(of.partition) == null) missing -= 1
    told(of.partition) = of
  }

  def isComplete: Boolean = missing == 0

  def isCounted: Boolean = told.forall(_.total.isDefined)

  def sum(of: StoreRows => Long): Long = told.iterator.map(of).sum
}

/**
 * The reports of an epoch, on the driver. With the last one, it has the progress of the epoch tell how many rows there are.
 *
 * Relies on Spark: the scheduler's thread merges what a task has counted before the job ends, its operator's metrics first, since these
 * come with the task and a report when its store is committed.
 */
private[statistics] final class EpochReports(query: MicroBatchExecution, totals: RowTotals)
  extends CollectionAccumulator[Array[Byte]] {

  override def merge(other: AccumulatorV2[Array[Byte], util.List[Array[Byte]]]): Unit = {
    super.merge(other)
    // The number is not worth an epoch.
    Utils.tryLogNonFatalError {
      val corrected = totals.synchronized {
        other.value.forEach(report => totals.add(StoreRows.parse(report)))
        totals.corrected()
      }
      corrected.foreach { case (operator, (stores, rows)) =>
        SparkInternals.setStateRows(query, totals.epoch, operator, stores, rows)
      }
    }
  }

  /** Once the epoch is committed. */
  def known: Map[(Long, String), Long] = totals.synchronized(totals.totals)
}
