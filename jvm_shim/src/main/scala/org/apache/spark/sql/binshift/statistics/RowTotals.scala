package org.apache.spark.sql.binshift.statistics

import java.util

import scala.collection.mutable

import org.apache.spark.sql.binshift.internals.SparkInternals
import org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution
import org.apache.spark.sql.execution.streaming.state.binshift.conversion.StoreForm
import org.apache.spark.sql.execution.streaming.state.binshift.statistics.StoreRows
import org.apache.spark.util.{AccumulatorV2, CollectionAccumulator, Utils}

/**
 * Computes how many rows the stores of each operator have after an epoch, over all partitions.
 *
 * Spark adds up the counts of all stores. That is wrong while bins come on demand, because no store counts a row that is on its
 * way to it. So if a store doesn't know its number of rows, the total is computed from
 * that of the epoch before, plus the rows that the epoch has added, less those that it has removed. This is exact wherever rows
 * are, and however often a store is loaded again meanwhile. In the first epochs of a run, until all stores have counted, it isn't
 * known.
 *
 * @param before the totals of the epoch before, as far as they are known, by operator and store
 */
private[statistics] final class RowTotals(val epoch: Long, partitions: Int, before: Map[(Long, String), Long]) {
  private val stores = mutable.Map.empty[(Long, String), StoreTotal]
  private val alreadyCorrected = mutable.Set.empty[Long]

  /** Takes in a store's report, which replaces an earlier one. */
  def add(of: StoreRows): Unit =
    if (of.epoch == epoch && of.isSized && of.partition < partitions)
      stores.getOrElseUpdate((of.operator, of.store), new StoreTotal(partitions)).add(of)

  /** The totals that are known, for stores whose partitions have all reported. */
  def totals: Map[(Long, String), Long] = for ((store, of) <- stores.toMap; total <- totalOf(store, of)) yield store -> total

  /**
   * The operators for which Spark's sum is wrong, with the number of stores that have reported and the correct number of rows,
   * once all partitions have reported. An operator stays in the result, because Spark adds the report of a task that runs again
   * to the corrected number.
   */
  def corrected(): Map[Long, (Int, Long)] = stores.toMap.groupBy(_._1._1).flatMap { case (operator, all) =>
    // Relies on Spark: it doesn't count the rows of a join's stores that count the values of each key.
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

/** The reports of the partitions of one store. */
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
 * The reports of an epoch on the driver. When the last one has arrived, this corrects the number of rows in the progress of the
 * epoch.
 *
 * Relies on Spark: before the job ends, the scheduler's thread merges what each task has counted. A task's metrics of its
 * operator are merged before its report, which is made when the store is committed.
 */
private[statistics] final class EpochReports(query: MicroBatchExecution, totals: RowTotals)
  extends CollectionAccumulator[Array[Byte]] {

  override def merge(other: AccumulatorV2[Array[Byte], util.List[Array[Byte]]]): Unit = {
    super.merge(other)
    // The number isn't worth failing an epoch.
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

  /** Called when the epoch is committed. */
  def known: Map[(Long, String), Long] = totals.synchronized(totals.totals)
}
