package org.apache.spark.sql.execution.streaming.state.binshift

import org.apache.spark.sql.execution.streaming.operators.stateful.transformwithstate.StateStoreColumnFamilySchemaUtils
import org.apache.spark.sql.execution.streaming.state.{ByteArrayPair, ColumnFamilyInfo, RocksDB, StateStore}
import org.apache.spark.util.NextIterator

/**
 * A column family of a store. Its number differs from partition to partition, in the order in which
 * operators happened to create the families; what is moved is moved by name.
 *
 * @param isInternal whether Spark counts its rows apart from the user's
 */
private[binshift] final case class ColumnFamily(name: String, isInternal: Boolean)

private[binshift] object ColumnFamily {
  /** The only family of a store that was made without. */
  val Default: ColumnFamily = ColumnFamily(StateStore.DEFAULT_COL_FAMILY_NAME, isInternal = false)

  /**
   * Whether operators read a family in the order of its keys across partitioning keys, and stop early:
   * timers by time, TTL indexes, and the time index of a join.
   */
  def isReadInOrder(family: String): Boolean =
    StateStoreColumnFamilySchemaUtils.isTtlColFamilyName(family) ||
      family.startsWith("$") && family.endsWith("_timestampToKey") ||
      family == "left-tsWithKey" || family == "right-tsWithKey"

  /**
   * Calls `consume` for each row of `bins` in a family, whose keys the database gives as stored. A
   * bin is a range of keys, or else, in a family that is read in order, all rows are looked through.
   */
  def foreachRow(db: RocksDB, family: String, bins: Seq[Int])(consume: ByteArrayPair => Unit): Unit = {
    val codec = BinKeyCodec.of(family)
    if (codec.isBehind) {
      val wanted = bins.toSet
      each(db.rangeScan(None, None, family)) { row => if (wanted(codec.binOf(row.key))) consume(row) }
    } else {
      ranges(bins).foreach { case (first, last) =>
        each(db.rangeScan(BinKeyCodec.lowerBound(first), BinKeyCodec.lowerBound(last + 1), family))(consume)
      }
    }
  }

  private def each(rows: NextIterator[ByteArrayPair])(consume: ByteArrayPair => Unit): Unit =
    try rows.foreach(consume) finally rows.closeIfNeeded()

  /** Runs of consecutive bins, as (first, last), so that neighbours cost one scan. */
  private def ranges(bins: Seq[Int]): Seq[(Int, Int)] =
    bins.sorted.foldLeft(List.empty[(Int, Int)]) {
      case ((first, last) :: done, bin) if bin == last + 1 => (first, bin) :: done
      case (done, bin) => (bin, bin) :: done
    }.reverse

  /**
   * The families of a loaded database.
   *
   * Relies on Spark: `RocksDB` keeps what is internal in a private map. Read by reflection, once per
   * source of a switch.
   */
  def of(db: RocksDB, useColumnFamilies: Boolean): Seq[ColumnFamily] =
    if (!useColumnFamilies) Seq(Default)
    else db.allColumnFamilyNames.toSeq.sorted.map { name =>
      ColumnFamily(name, infoOf.invoke(db, name).asInstanceOf[ColumnFamilyInfo].isInternal)
    }

  private lazy val infoOf = {
    val method = classOf[RocksDB].getDeclaredMethod("getColumnFamilyInfo", classOf[String])
    method.setAccessible(true)
    method
  }
}
