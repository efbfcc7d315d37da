package org.apache.spark.sql.execution.streaming.state.binshift.shipping

import java.io.File

import scala.collection.mutable

import org.apache.spark.sql.execution.streaming.state.binshift.Faults
import org.apache.spark.sql.execution.streaming.state.binshift.keys.{ColumnFamily, KeyRows, NumberedFamily}
import org.apache.spark.sql.execution.streaming.state.binshift.storage.{SstFile, SstFiles}
import org.apache.spark.sql.execution.streaming.state.RocksDBConf

/**
 * The files of a copy on local disk, by part, that is, by step or by what came together on demand: the
 * rows of the base, a file per part and family, and the changes since. The bytes of the base count against the
 * executor's bound, from when rows are added until their file is taken or discarded.
 *
 * Not thread-safe.
 */
private[binshift] final class BaseFiles(dir: File, conf: RocksDBConf) extends AutoCloseable {
  private val writer = new SstFiles(dir, conf)
  private val files = mutable.Map.empty[Int, Vector[SstFile]].withDefaultValue(Vector.empty)
  /** The part and family of the rows that are being added, if any are. */
  private var openPart = 0
  private var openFamily: Option[ColumnFamily] = None
  /** Bytes of these rows, as they are before the file is compressed. */
  private var openBytes = 0L

  /** Adds a row; rows of one part and family come together, in the order of keys. */
  def add(part: Int, family: ColumnFamily, key: Array[Byte], value: Array[Byte]): Unit = {
    if (part != openPart || !openFamily.contains(family)) {
      finishPart()
      openPart = part
      openFamily = Some(family)
    }
    writer.put(key, value)
    countOpen(openBytes + key.length + value.length)
  }

  /** Writes down what was added; all rows of the part that was added last are here. */
  def finishPart(): Unit = {
    openFamily.foreach { family =>
      Faults.at("stage.file", openPart)
      writer.finish(family.isInternal).foreach { file =>
        // Not both at once: other copies look at the sum.
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

  /** The files of a part's base, which are the caller's from now on. */
  def take(part: Int): Seq[SstFile] = {
    val taken = files.remove(part).getOrElse(Vector.empty)
    taken.foreach(f => ShippingThreads.stagedBytes.addAndGet(-f.bytes))
    taken
  }

  /** Writes a file of the changes of `bins`; `None` if there are none. */
  def write(families: Iterable[NumberedFamily], bins: Seq[Int], changes: BaseFiles.Changes): Option[SstFile] = {
    families.toSeq.sortBy(_.prefix)(KeyRows.Order).foreach(changes(_, bins)(writer.put, writer.delete))
    writer.finish(isInternal = false)
  }

  def discard(file: SstFile): Unit = file.file.delete()

  /** Forgets all rows, also when there is no room to write down what was begun. */
  def clear(): Unit = {
    openFamily = None
    countOpen(0)
    writer.abandon()
    files.keys.toSeq.foreach(take(_).foreach(discard))
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
