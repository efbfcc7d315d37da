package org.apache.spark.sql.execution.streaming.state.binshift.shipping

import scala.collection.mutable
import scala.util.control.NonFatal

import org.rocksdb.{RocksDB => NativeRocksDB}

import org.apache.spark.internal.Logging
import org.apache.spark.sql.execution.streaming.state.RocksDBConf
import org.apache.spark.sql.execution.streaming.state.binshift.Faults
import org.apache.spark.sql.execution.streaming.state.binshift.keys.{BinKeyCodec, NumberedFamily}
import org.apache.spark.sql.execution.streaming.state.binshift.statistics.{LaterCount, RowCounts}
import org.apache.spark.sql.execution.streaming.state.binshift.storage.{BinRows, WholeFiles}

/**
 * Counts the rows of some groups of bins in linked files, on a background thread. It continues when the order is over, because both
 * ends of a split need the numbers.
 *
 * @param owned how many bins the files contain
 * @param bins  the bins of each group
 * @param end   called once when the counting is over
 */
private[binshift] final class LinkedCount(
    files: WholeFiles, owned: Int, bins: Map[Int, Seq[Int]], conf: RocksDBConf, end: () => Unit) extends Logging {

  @volatile private var isEnded = false
  @volatile private var counts = Map.empty[Int, RowCounts]

  def begin(): Unit = ShippingThreads.counts.execute(() => run())

  /** Marks the count as over, because it will never begin. */
  def abandon(): Unit = isEnded = true

  /** The rows of a group. */
  def rowsOf(group: Int): LaterCount = later(counts.get(group), expectedOf(group))

  /** All rows except those of a group. */
  def allBut(group: Int): LaterCount = later(counts.get(group).map(files.rows - _), files.rows - expectedOf(group))

  private def expectedOf(group: Int): RowCounts = files.rows.part(bins(group).size, owned)

  private def later(counted: => Option[RowCounts], guess: RowCounts): LaterCount = new LaterCount {
    override def isOver: Boolean = isEnded
    override def rows: Option[RowCounts] = counted
    override val expected: RowCounts = guess
  }

  private def run(): Unit =
    try {
      Faults.at("split.count")
      if (conf.trackTotalNumberOfRows) WholeFiles.reading(files.dir, conf)(count)
      else counts = bins.map { case (group, _) => group -> RowCounts.Zero }
    } catch {
      case NonFatal(e) => logWarning(
          s"rows in ${files.dir} could not be counted in the background; they are counted when their number is needed", e)
    } finally {
      isEnded = true
      try end()
      catch { case NonFatal(e) => logWarning(s"${files.dir} could not be deleted; it goes with the executor", e) }
    }

  private def count(native: NativeRocksDB): Unit = {
    val (ordered, ranged) = files.families.partition(_.family.isReadInOrder)
    val scattered = ordered.map(countScattered(native, _))
    counts = bins.map { case (group, of) =>
      group -> RowCounts.sum(scattered.map(_(group)) ++ ranged.map(BinRows.eachOf(native, _, of)(_ => ())))
    }
  }

  /** Counts the rows of each group in a family in which they aren't ranges, in one pass. */
  private def countScattered(native: NativeRocksDB, family: NumberedFamily): Map[Int, RowCounts] = {
    val codec = BinKeyCodec.of(family.family.name)
    val groups = for ((group, of) <- bins; bin <- of) yield bin -> group
    val rows = mutable.Map.empty[Int, Long].withDefaultValue(0L)
    BinRows.eachOf(native, family, groups.keys.toSeq)(key => rows(groups(codec.binOf(key))) += 1): Unit
    bins.map { case (group, _) => group -> RowCounts.of(family.family.isInternal, rows(group)) }
  }
}
