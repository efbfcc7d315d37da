package org.apache.spark.sql.execution.streaming.state.binshift.storage

import java.io.File

import org.apache.spark.sql.execution.streaming.state.binshift.keys.NumberedFamily
import org.apache.spark.sql.execution.streaming.state.binshift.statistics.RowCounts

/**
 * What was found out about bins before they leave.
 *
 * @param rows    that they have
 * @param ordered how their rows go from families that are read in order; `None` if those are looked through
 */
private[binshift] final case class DepartedBins(rows: RowCounts, ordered: Option[OrderedRemoval] = None)

private[binshift] object DepartedBins {
  /** Bins whose rows are counted elsewhere. */
  val Uncounted: DepartedBins = DepartedBins(RowCounts.Zero)
}

/**
 * All rows of some bins in families that are read in order, among which lie others that stay.
 *
 * @param families of the store when the files were written
 * @param files    that delete the rows of a version; no two of them overlap
 * @param more     that delete rows which were written since, in groups of which no two files overlap
 * @param keys     in their stored form, of other rows that were written since, by the name of their family
 */
private[binshift] final case class OrderedRemoval(
    families: Seq[NumberedFamily], files: Seq[File], more: Seq[Seq[File]], keys: Seq[Map[String, Iterable[Array[Byte]]]]) {

  /** Whether the files are right for a store with these families: numbers may be others on another way to a version. */
  def fits(now: Seq[NumberedFamily]): Boolean = {
    val numbers = now.map(f => f.family -> f.number).toMap
    families.forall(f => numbers.get(f.family).contains(f.number))
  }
}
