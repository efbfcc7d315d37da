package org.apache.spark.sql.execution.streaming.state.binshift.recovery

import java.io.File

import scala.collection.mutable

import org.apache.spark.sql.execution.streaming.state.binshift.Faults
import org.apache.spark.sql.execution.streaming.state.binshift.keys.{ColumnFamily, NumberedFamily}
import org.apache.spark.sql.execution.streaming.state.binshift.statistics.{RowCounts, RowsByBin}
import org.apache.spark.sql.execution.streaming.state.binshift.storage._

/**
 * Brings rows of other stores, and changes that these have committed, into a database. Families are found by their names, because
 * they may have other numbers here; those that are missing are created.
 *
 * Keys are in their stored form, and no changelog is open. Used by the thread that has the database.
 */
private[binshift] final class ForeignRows(db: BinKeyedRocksDB) {
  private val rows = new BinRows(db, db.hasFamilies)
  private val families = mutable.Map.empty[String, NumberedFamily]
  private var brought = 0L

  /** Called when the database may have been loaded anew, so that families may have other numbers, or be gone. */
  def forget(): Unit = families.clear()

  /** The bytes that were brought so far. */
  def bytes: Long = brought

  /**
   * Takes in the rows of `bins` in another database.
   *
   * @param dir     an empty directory, for files
   * @param makeWay removes the rows of these bins that are here. Called once the other database's rows are read, as far as they can
   *                be read before; if that fails, nothing has changed
   */
  def takeIn(from: BinKeyedRocksDB, bins: Seq[Int], dir: File)(makeWay: => Unit): Unit = {
    val native = RocksDBFields.native(from)
    val all = ColumnFamily.numbered(from, db.hasFamilies)
    // Creates families without rows, too. Otherwise their numbers would depend on the base that comes first, and differ between
    // attempts of a task.
    all.foreach(theirs => mine(theirs.family))
    val files = new SstFiles(dir, db.conf)
    val found = RowsByBin()
    val (renumbered, alike) = all.partition(isPutAnew)
    val written =
      try alike.flatMap { theirs =>
          theirs.foreachRow(native, native.getDefaultColumnFamily, bins) { (key, value) =>
            files.put(mine(theirs.family).nativeKey(theirs.keyIn(key)), Faults.change("recovery.row", value))
            found.add(theirs.binOf(key), RowCounts.of(theirs.family.isInternal, 1))
          }
          files.finish()
        }
      finally files.close()
    makeWay
    from.inStoredForm(renumbered.foreach { theirs =>
      theirs.foreachRow(native, native.getDefaultColumnFamily, bins)((key, value) => putAnew(from, theirs, key, value))
    })
    rows.takeIn(Seq(written.map(_.file)), found)
    brought += written.map(_.bytes).sum
  }

  def apply(change: Change): Unit = {
    val name = mine(change.family.family).family.name
    def values = RowForm.valuesIn(db, change.key, change.value)
    val isAnew = isPutAnew(change.family)
    db.counting(change.bin)(Change.by(change.kind)(
        put = if (isAnew) db.putList(change.key, values, name) else db.putStored(change.key, change.value, name),
        merge = if (isAnew) db.mergeList(change.key, values, name) else db.mergeStored(change.key, change.value, name),
        delete = db.remove(change.key, name)))
    brought += change.bytes
  }

  /** True if rows have to be written one by one, because row checksums cover the family's number, which is another one here. */
  private def isPutAnew(theirs: NumberedFamily): Boolean =
    RowForm.hasChecksums(db.conf) && mine(theirs.family).number != theirs.number

  private def putAnew(from: BinKeyedRocksDB, theirs: NumberedFamily, stored: Array[Byte], value: Array[Byte]): Unit = {
    val (name, key) = (theirs.family.name, theirs.keyIn(stored))
    db.counting(theirs.binOf(stored))(db.putList(key, RowForm.valuesOf(from, name, key, value), name))
    brought += key.length + value.length
  }

  /** The family of the same name here. */
  private def mine(family: ColumnFamily): NumberedFamily = families.getOrElseUpdate(family.name,
    NumberedFamily(family, Option.when(db.hasFamilies)(db.createColFamilyIfAbsent(family.name, family.isInternal))))
}
