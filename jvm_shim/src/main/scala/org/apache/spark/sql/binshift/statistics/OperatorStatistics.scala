package org.apache.spark.sql.binshift.statistics

import scala.collection.immutable.SortedMap

import org.apache.spark.sql.execution.streaming.state.binshift.routing.RoutingTable
import org.apache.spark.sql.execution.streaming.state.binshift.statistics.StoreReport

/** The statistics of one operator, which may have several stores. Not thread-safe. */
private[binshift] final class OperatorStatistics(val id: Long, val name: String, bins: Int) {
  private var stores = SortedMap.empty[String, StoreStatistics]
  /** The executor on which each partition ran last. */
  private var executors = Map.empty[Int, String]
  /** The executors of the partitions that waited for copies in the last epoch. */
  private var waiting = Map.empty[Int, String]

  def commit(reports: Iterable[StoreReport], table: RoutingTable): Unit = {
    val byStore = reports.groupBy(_.store)
    (byStore.keySet -- stores.keySet).foreach(add)
    stores.foreach { case (store, s) => s.commit(byStore.getOrElse(store, Nil), table) }
    executors = executors.filter(_._1 < table.partitions) ++ reports.map(r => r.partition -> r.executor)
    waiting = reports.filter(_.awaited > 0).map(r => r.partition -> r.executor).toMap
  }

  /** The partitions that waited for copies in the last epoch, with their executors. */
  def awaiting: Map[Int, String] = waiting

  /** Reads and writes of a bin in the last epoch, in all stores. */
  def touches(bin: Int): Long = stores.values.map(s => s.reads(bin) + s.writes(bin)).sum

  def restore(saved: SavedStore): Unit = add(saved.store).restore(saved)

  def saved: Iterable[SavedStore] = stores.map { case (store, s) =>
    SavedStore(id, store, s.keys.clone(), s.bytes.clone(), s.rows.clone())
  }

  def snapshot(table: RoutingTable): OperatorSnapshot = OperatorSnapshot(
    id, name, stores.values.forall(_.isSizeKnown), Seq.tabulate(table.partitions)(executors.get),
    sum(_.keys), sum(_.bytes), sum(_.reads), sum(_.writes))

  private def add(store: String): StoreStatistics = {
    val made = new StoreStatistics(bins)
    stores += store -> made
    made
  }

  private def sum(of: StoreStatistics => Array[Long]): Array[Long] = {
    val out = new Array[Long](bins)
    stores.values.map(of).foreach(part => out.indices.foreach(i => out(i) += part(i)))
    out
  }
}

/**
 * @param isSized   whether keys and bytes are known
 * @param executors where each partition ran last
 * @param standbys  the executors that keep each partition's files, best one first, with the number of versions that each lacks, if
 *                  it has a version; empty without standbys
 */
private[binshift] final case class OperatorSnapshot(
    id: Long, name: String, isSized: Boolean, executors: Seq[Option[String]],
    keys: Array[Long], bytes: Array[Long], reads: Array[Long], writes: Array[Long],
    standbys: Seq[Seq[(String, Option[Long])]] = Nil) {

  /** The standby of a partition that lacks the fewest versions. */
  def standby(partition: Int): Option[(String, Option[Long])] =
    standbys.lift(partition).flatMap(_.minByOption(_._2.getOrElse(Long.MaxValue)))
}
