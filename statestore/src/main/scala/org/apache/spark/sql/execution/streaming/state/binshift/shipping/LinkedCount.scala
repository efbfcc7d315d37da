package org.apache.spark.sql.execution.streaming.state.binshift.shipping

import scala.util.control.NonFatal

import org.rocksdb.{RocksDB => NativeRocksDB}

import org.apache.spark.internal.Logging
import org.apache.spark.sql.execution.streaming.state.RocksDBConf
import org.apache.spark.sql.execution.streaming.state.binshift.Faults
import org.apache.spark.sql.execution.streaming.state.binshift.statistics.{LaterCount, RowCounts}
import org.apache.spark.sql.execution.streaming.state.binshift.storage.{BinRows, WholeFiles}

/**
 * Counts rows of some groups of bins in files that are linked, on a thread of the background. It goes on when the order is over,
 * since both ends of a split need the numbers.
 *
 * @param owned how many bins the files hold
 * @param bins  by group
 * @param end   is called once when it is over
 */
private[binshift] final class LinkedCount(
    files: WholeFiles, owned: Int, bins: Map[Int, Seq[Int]], conf: RocksDBConf, end: () => Unit) extends Logging {

  @volatile private var isEnded = false
  @volatile private var counts = Map.empty[Int, RowCounts]

  def begin(): Unit = ShippingThreads.counts.execute(() => run())

  /** Ends it if it does not begin. */
  def abandon(): Unit = isEnded = true

  /** The rows of a group. */
  def rowsOf(group: Int): LaterCount = later(counts.get(group), expectedOf(group))

  /** All rows but those of a group. */
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
      case NonFatal(e) => logWarning(s"rows in ${files.dir} could not be counted; they are when their number is needed", e)
    } finally {
      isEnded = true
      try end()
      catch { case NonFatal(e) => logWarning(s"${files.dir} could not be deleted; it goes with the executor", e) }
    }

  private def count(native: NativeRocksDB): Unit = bins.foreach { case (group, of) =>
    counts += group -> RowCounts.sum(files.families.map(BinRows.eachOf(native, _, of)(_ => ())))
  }
}
