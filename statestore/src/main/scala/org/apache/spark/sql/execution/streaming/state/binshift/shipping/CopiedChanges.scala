package org.apache.spark.sql.execution.streaming.state.binshift.shipping

import java.io.File

import scala.collection.mutable

import org.apache.spark.sql.execution.streaming.state.binshift.keys.NumberedFamily
import org.apache.spark.sql.execution.streaming.state.binshift.statistics.RowCounts
import org.apache.spark.sql.execution.streaming.state.binshift.storage._
import org.apache.spark.sql.execution.streaming.state.RecordType

/**
 * What has changed in a copy since its base, by step: how many rows more, and files of the changes for a step that is due.
 *
 * A step is due one epoch ahead, and its last changes come with the epoch itself. So what was written to a file stays there,
 * and a later file has only what has changed since.
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
  import CopiedChanges._

  private val store = new StagingStore(dir, base.map(_.file))
  private val rows = mutable.Map.empty[Int, RowCounts].withDefaultValue(RowCounts.Zero)
  /** Of the steps for which files were made. */
  private val written = mutable.Map.empty[Int, Written]

  /** A change of a bin that goes with `step`; values are as they are stored. */
  def add(step: Int, kind: RecordType.Value, family: NumberedFamily, key: Array[Byte], value: Array[Byte]): Unit = {
    val native = family.nativeKey(key)
    val before = store.get(native)
    val after = kind match {
      case RecordType.PUT_RECORD => Some(value)
      case RecordType.MERGE_RECORD => Some(before.fold(value)(_ ++ RowForm.delimiter(arguments.conf).getBytes ++ value))
      case RecordType.DELETE_RECORD => None
      case other => throw new DamagedShipment(s"the source's changelog has a record of kind $other")
    }
    store.change(native, after, written.get(step).map(_.since))
    val n = (if (kind == RecordType.DELETE_RECORD) 0 else 1) - before.size
    rows(step) += RowCounts.of(family.family.isInternal, n)
  }

  /** Writes the changes for `step`, whose bins these are, that no file has; whether there were any. */
  def write(step: Int, bins: Seq[Int]): Boolean = store.isOpen && {
    if (written.get(step).exists(w => w.files.size >= MaxFiles && !w.since.isEmpty)) forget(step)
    written.get(step) match {
      case None =>
        written(step) = new Written(files.write(families, bins, store.foreachChange(_, _)).toVector, store.newLayer())
        written(step).files.nonEmpty
      case Some(w) if w.since.isEmpty => false
      case Some(w) =>
        val file = files.write(families, bins, w.since.foreachChange(_, _))
        w.since.close()
        written(step) = new Written(w.files ++ file, store.newLayer())
        true
    }
  }

  /** The files for `step`, of which later ones win over earlier ones, and how many rows they add. */
  def take(step: Int, bins: Seq[Int]): (Seq[File], RowCounts) = {
    write(step, bins)
    val made = written.remove(step).fold(Vector.empty[SstFile]) { w =>
      w.since.close()
      w.files
    }
    (made.map(_.file), rows.remove(step).getOrElse(RowCounts.Zero))
  }

  override def close(): Unit = {
    written.keys.toSeq.foreach(forget)
    store.close()
  }

  private def forget(step: Int): Unit = written.remove(step).foreach { w =>
    w.since.close()
    w.files.foreach(files.discard)
  }
}

private object CopiedChanges {
  /** Of a step that is due for more epochs, all is written anew then. */
  private val MaxFiles = 8

  /** @param since what has changed since the last of the files */
  private final class Written(val files: Vector[SstFile], val since: StagingLayer)
}
