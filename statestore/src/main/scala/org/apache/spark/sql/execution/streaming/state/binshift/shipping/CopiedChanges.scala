package org.apache.spark.sql.execution.streaming.state.binshift.shipping

import java.io.File

import scala.collection.mutable

import org.apache.spark.sql.execution.streaming.state.binshift.keys.NumberedFamily
import org.apache.spark.sql.execution.streaming.state.binshift.statistics.RowCounts
import org.apache.spark.sql.execution.streaming.state.binshift.storage._
import org.apache.spark.sql.execution.streaming.state.RecordType

/**
 * What has changed in a copy since its base, by step: how many rows more, and a file of the changes for a step that is due.
 *
 * Not thread-safe.
 *
 * @param base  the files of the base, by whose rows changes are counted
 * @param files makes the files of changes
 * @param dir   a directory of its own, which goes when it is closed
 */
private[binshift] final class CopiedChanges(
    base: Seq[SstFile], files: BaseFiles, families: Iterable[NumberedFamily], arguments: RocksDBArguments, dir: File)
  extends AutoCloseable {

  private val store = new StagingStore(dir)
  private val rows = mutable.Map.empty[Int, RowCounts].withDefaultValue(RowCounts.Zero)
  private val overlays = mutable.Map.empty[Int, SstFile]
  try base.foreach(f => store.addCopied(f.file))
  catch {
    case e: Throwable =>
      store.close()
      throw e
  }

  /** A change of a bin that goes with `step`; values are as they are stored. */
  def add(step: Int, kind: RecordType.Value, family: NumberedFamily, key: Array[Byte], value: Array[Byte]): Unit = {
    val native = family.nativeKey(key)
    val before = store.get(native)
    kind match {
      case RecordType.PUT_RECORD => store.put(native, value)
      case RecordType.MERGE_RECORD =>
        store.put(native, before.fold(value)(_ ++ RowForm.delimiter(arguments.conf).getBytes ++ value))
      case RecordType.DELETE_RECORD => store.delete(native)
      case other => throw new DamagedShipment(s"the source's changelog has a record of kind $other")
    }
    val n = (if (kind == RecordType.DELETE_RECORD) 0 else 1) - before.size
    rows(step) += RowCounts.of(family.family.isInternal, n)
  }

  /** Files that were made have not all changes any more. */
  def outdate(): Unit = {
    overlays.values.foreach(files.discard)
    overlays.clear()
  }

  /** Makes the file for `step`, whose bins these are; whether there was something to do. */
  def write(step: Int, bins: Seq[Int]): Boolean = !overlays.contains(step) && {
    files.write(families, bins, store).exists { file =>
      overlays(step) = file
      true
    }
  }

  /** The file for `step`, if it has changes, and how many rows it adds. */
  def take(step: Int, bins: Seq[Int]): (Option[File], RowCounts) = {
    write(step, bins)
    (overlays.remove(step).map(_.file), rows.remove(step).getOrElse(RowCounts.Zero))
  }

  override def close(): Unit = store.close()
}
