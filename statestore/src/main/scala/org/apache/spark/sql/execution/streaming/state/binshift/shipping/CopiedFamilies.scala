package org.apache.spark.sql.execution.streaming.state.binshift.shipping

import org.apache.spark.sql.execution.streaming.state.binshift.keys.{BinKeyCodec, NumberedFamily}
import org.apache.spark.sql.execution.streaming.state.binshift.storage.{RocksDBArguments, RowForm}

/**
 * Maps the column families of a copy's source, by their numbers there, to the families with the same names in the store that gets the
 * bins.
 *
 * Changed by one thread at a time, while a task that applies a changelog may be reading it.
 *
 * @param mine families of the store that gets the bins, by name
 */
private[binshift] final class CopiedFamilies(mine: Map[String, NumberedFamily], arguments: RocksDBArguments) {
  @volatile private var theirs = Map.empty[Option[Short], NumberedFamily]

  def add(families: Seq[NumberedFamily]): Unit = theirs ++= families.map(f => f.number -> f)

  def clear(): Unit = theirs = Map.empty

  /** The bin of a native key of the source. */
  def binOf(native: Array[Byte]): Int = BinKeyCodec.of(of(native).family.name).binOf(keyIn(native))

  /** A native key of the source without its family's number. */
  def keyIn(native: Array[Byte]): Array[Byte] =
    of(native).keyIn(native)

  /** The family here of a native key of the source. */
  def hereOf(native: Array[Byte]): NumberedFamily = here(of(native))

  /** The family here that has the same name as a family of the source. */
  def here(family: NumberedFamily): NumberedFamily = {
    val found = mine.getOrElse(family.family.name,
      throw new IllegalStateException(
        s"column family ${family.family.name} does not exist here yet"))
    if (RowForm.hasChecksums(arguments.conf) && found.number != family.number) {
      throw new IllegalStateException(
        s"column family ${family.family.name} has another number here, which row checksums cover")
    }
    found
  }

  private def of(native: Array[Byte]): NumberedFamily = {
    val number = Option.when(arguments.useColumnFamilies)(NumberedFamily.numberIn(native))
    theirs.getOrElse(number,
      throw new DamagedShipment(
        s"the source made the column family of number ${number.getOrElse("(none)")} since"))
  }
}
