package org.apache.spark.sql.execution.streaming.state.binshift.shipping

import org.apache.spark.sql.execution.streaming.state.binshift.keys.NumberedFamily
import org.apache.spark.sql.execution.streaming.state.binshift.recovery.CommittedChanges.Families
import org.apache.spark.sql.execution.streaming.state.binshift.storage.{RocksDBArguments, RowForm}

/**
 * The column families of a copy: those of its source, by the numbers in the source's changelogs, and those of the store that gets the
 * bins.
 *
 * Changed by one thread at a time, while a task that applies a changelog may be reading it.
 *
 * @param mine families of the store that gets the bins, by name
 */
private[binshift] final class CopiedFamilies(mine: Map[String, NumberedFamily], arguments: RocksDBArguments) {
  @volatile private var known: Families = Map.empty

  /** The families that the source has. */
  def theirs: Families = known

  def add(families: Iterable[NumberedFamily]): Unit = known ++= families.map(f => f.number -> f)

  def clear(): Unit = known = Map.empty

  /** The family here that has the same name as a family of the source. */
  def here(family: NumberedFamily): NumberedFamily = {
    val found = mine.getOrElse(family.family.name,
      throw new IllegalStateException(s"column family ${family.family.name} does not exist here yet"))
    if (RowForm.hasChecksums(arguments.conf) && found.number != family.number)
      throw new IllegalStateException(s"column family ${family.family.name} has another number here, which row checksums cover")
    found
  }
}

private[shipping] object CopiedFamilies {
  /** Looks up families of a source, which may have made more of them since it told its families. */
  def orDamaged(theirs: Families)(number: Option[Short]): NumberedFamily = theirs.getOrElse(number,
    throw new DamagedShipment(s"the source made the column family of number ${number.getOrElse("(none)")} since"))
}
