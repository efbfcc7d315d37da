package org.apache.spark.sql.execution.streaming.state.binshift.storage

import java.io.File

import org.apache.spark.sql.execution.streaming.state.binshift.keys.NumberedFamily
import org.apache.spark.sql.execution.streaming.state.binshift.statistics.RowCounts

/**
 * The facts that are known about bins before they leave.
 *
 * @param rows    the number of their rows
 * @param ordered how to remove their rows from families that are read in order; `None` if those have to be scanned
 */
private[binshift] final case class DepartedBins(rows: RowCounts, ordered: Option[OrderedRemoval] = None)

private[binshift] object DepartedBins {
  /** Bins whose rows are counted elsewhere. */
  val Uncounted: DepartedBins = DepartedBins(RowCounts.Zero)
}

/**
 * Removes all rows of some bins from families that are read in order, where they are scattered among others that stay.
 *
 * @param families the store's families when the files were written
 * @param files    files that delete the rows of a version; no two of them overlap
 * @param more     files that delete rows which were written since, in groups of files that don't overlap
 * @param keys     stored keys of other rows that were written since, by the name of their family
 */
private[binshift] final case class OrderedRemoval(
    families: Seq[NumberedFamily], files: Seq[File], more: Seq[Seq[File]], keys: Seq[Map[String, Iterable[Array[Byte]]]]) {

  /** True if the files fit a store with these families. Families may have other numbers if the store came to its version differently. */
  def fits(now: Seq[NumberedFamily]): Boolean = {
    val numbers = now.map(f => f.family -> f.number).toMap
    families.forall(f => numbers.get(f.family).contains(f.number))
  }
}
