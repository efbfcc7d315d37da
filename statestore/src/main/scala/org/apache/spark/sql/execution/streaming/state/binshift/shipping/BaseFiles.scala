package org.apache.spark.sql.execution.streaming.state.binshift.shipping

import java.io.File

import scala.collection.mutable

import org.apache.spark.sql.execution.streaming.state.binshift.Faults
import org.apache.spark.sql.execution.streaming.state.binshift.keys.{KeyRows, NumberedFamily}
import org.apache.spark.sql.execution.streaming.state.binshift.statistics.{RowCounts, RowsByBin}
import org.apache.spark.sql.execution.streaming.state.binshift.storage.{SstFile, SstFiles}
import org.apache.spark.sql.execution.streaming.state.RocksDBConf

/**
 * The files of a copy on local disk: the rows of the base, in a file per part and family, and the changes since. A part is a step or,
 * on demand, the bins that came together. The bytes of the base count against the executor's bound, from the time when rows are
 * added until their file is taken or discarded.
 *
 * Not thread-safe.
 */
private[binshift] final class BaseFiles(dir: File, conf: RocksDBConf) extends AutoCloseable {
  private val writer = new SstFiles(dir, conf)
  private val files = mutable.Map.empty[Int, Vector[SstFile]].withDefaultValue(Vector.empty)
  private val rows = mutable.Map.empty[Int, RowsByBin]
  /** The part and family of the rows that are being added, if any are. */
  private var openPart = 0
  private var openFamily: Option[NumberedFamily] = None
  /** Bytes of these rows, before compression. */
  private var openBytes = 0L

  /** Adds a row with a native key. Rows of one part and family must be added one after the other, in the order of keys. */
  def add(part: Int, family: NumberedFamily, key: Array[Byte], value: Array[Byte]): Unit = {
    if (part != openPart || !openFamily.contains(family)) {
      finishPart()
      openPart = part
      openFamily = Some(family)
    }
    writer.put(key, value)
    rows.getOrElseUpdate(part, RowsByBin()).add(family.binOf(key), RowCounts.of(family.family.isInternal, 1))
    countOpen(openBytes + key.length + value.length)
  }

  /** Writes the added rows to a file, because all rows of the part have arrived. */
  def finishPart(): Unit = {
    openFamily.foreach { _ =>
      Faults.at("stage.file", openPart)
      writer.finish().foreach { file =>
        // Never counts both at a time, because other copies look at the sum.
        countOpen(0)
        ShippingThreads.stagedBytes.addAndGet(file.bytes)
        files(openPart) = files(openPart) :+ file
      }
    }
    openFamily = None
  }

  /** All files of the base, once all rows are added. */
  def finish(): Seq[SstFile] = {
    finishPart()
    files.values.flatten.toSeq
  }

  /** Hands over the files of a part's base to the caller, and says how many rows they have. */
  def take(part: Int): (Seq[SstFile], RowsByBin) = {
    val taken = files.remove(part).getOrElse(Vector.empty)
    taken.foreach(f => ShippingThreads.stagedBytes.addAndGet(-f.bytes))
    (taken, rows.remove(part).getOrElse(RowsByBin()))
  }

  /** Writes a file of the changes of `bins`; `None` if there are none. */
  def write(families: Iterable[NumberedFamily], bins: Seq[Int], changes: BaseFiles.Changes): Option[SstFile] = {
    families.toSeq.sortBy(_.prefix)(KeyRows.Order).foreach(changes(_, bins)(writer.put, writer.delete))
    writer.finish()
  }

  def discard(file: SstFile): Unit = file.file.delete()

  /** Forgets all rows. Works even if the disk has no room to finish a file. */
  def clear(): Unit = {
    openFamily = None
    countOpen(0)
    writer.abandon()
    files.keys.toSeq.foreach(take(_)._1.foreach(discard))
    rows.clear()
  }

  override def close(): Unit = {
    clear()
    writer.close()
  }

  private def countOpen(bytes: Long): Unit = {
    ShippingThreads.stagedBytes.addAndGet(bytes - openBytes)
    openBytes = bytes
  }
}

private object BaseFiles {
  /** Calls one of the two for each changed key of bins in a family, in the order of keys. */
  type Changes = (NumberedFamily, Seq[Int]) => ((Array[Byte], Array[Byte]) => Unit, Array[Byte] => Unit) => Unit
}
