package org.apache.spark.sql.execution.streaming.state.binshift.shipping

import java.io.File

import scala.collection.mutable

import org.apache.spark.sql.execution.streaming.state.binshift.keys.NumberedFamily
import org.apache.spark.sql.execution.streaming.state.binshift.recovery.Change
import org.apache.spark.sql.execution.streaming.state.binshift.statistics.{RowCounts, RowsByBin}
import org.apache.spark.sql.execution.streaming.state.binshift.storage._

/**
 * The changes of a copy since its base, by step: the number of rows that they add, and files with the changes for a step that is due.
 *
 * A step is due one epoch ahead, and its last changes come with the epoch itself. So a file that was written stays as it is, and a
 * later file has only the changes since.
 *
 * Not thread-safe.
 *
 * @param base  the files of the base, whose rows are needed to count changes
 * @param files makes the files of changes
 * @param dir   a directory of its own, which is deleted when this is closed
 */
private[binshift] final class CopiedChanges(
    base: Seq[SstFile], files: BaseFiles, families: Iterable[NumberedFamily], arguments: RocksDBArguments, dir: File)
  extends AutoCloseable {
  import CopiedChanges._

  private val store = new StagingStore(dir, base.map(_.file))
  private val rows = mutable.Map.empty[Int, RowsByBin]
  /** By step, the files that were made for it. */
  private val written = mutable.Map.empty[Int, Written]

  /**
   * Adds a change of a bin that moves with `step`.
   *
   * @param family the change's family in the store that gets the bin
   */
  def add(step: Int, change: Change, family: NumberedFamily): Unit = {
    val native = family.nativeKey(change.key)
    val before = store.get(native)
    def merged = before.fold(change.value)(_ ++ RowForm.delimiter(arguments.conf).getBytes ++ change.value)
    val after = Change.by(change.kind)(put = Option(change.value), merge = Some(merged), delete = None)
    store.change(native, after, written.get(step).map(_.since))
    val n = after.size - before.size
    rows.getOrElseUpdate(step, RowsByBin()).add(family.binOf(native), RowCounts.of(family.family.isInternal, n))
  }

  /** Writes those changes for `step` that are in no file yet; returns whether there were any. `bins` are the step's. */
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

  /** The files for `step`, of which later ones win over earlier ones, and the number of rows that they add to each bin. */
  def take(step: Int, bins: Seq[Int]): (Seq[File], RowsByBin) = {
    write(step, bins)
    val made = written.remove(step).fold(Vector.empty[SstFile]) { w =>
      w.since.close()
      w.files
    }
    (made.map(_.file), rows.remove(step).getOrElse(RowsByBin()))
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
  /** If a step stays due for more epochs than this, all its changes are written again to one file. */
  private val MaxFiles = 8

  /** @param since the changes since the last of the files */
  private final class Written(val files: Vector[SstFile], val since: StagingLayer)
}
