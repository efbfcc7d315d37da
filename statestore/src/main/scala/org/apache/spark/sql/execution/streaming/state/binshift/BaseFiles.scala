package org.apache.spark.sql.execution.streaming.state.binshift

import java.io.File

import scala.collection.mutable

import org.apache.spark.sql.execution.streaming.state.RocksDBConf

/**
 * The files of a copy on local disk, by step: the rows of the base, a file per step and family, and
 * the changes since. Their bytes count against the executor's bound until they are taken or discarded.
 *
 * Not thread-safe.
 */
private[binshift] final class BaseFiles(dir: File, conf: RocksDBConf) extends AutoCloseable {
  private val writer = new SstFiles(dir, conf)
  private val files = mutable.Map.empty[Int, Vector[SstFile]].withDefaultValue(Vector.empty)
  private var open: Option[(Int, ColumnFamily)] = None
  private var entered: Option[Int] = None
  private val complete = mutable.Set.empty[Int]

  /** Adds a row; rows of one step and family come together, in the order of keys. */
  def add(step: Int, family: ColumnFamily, key: Array[Byte], value: Array[Byte]): Unit = {
    if (!open.contains((step, family))) {
      finishOpen()
      open = Some((step, family))
    }
    writer.put(key, value)
  }

  /** The part `step` begins or goes on; the one before it is complete. */
  def enter(step: Int): Unit = if (!entered.contains(step)) {
    if (open.exists(_._1 != step)) finishOpen()
    complete ++= entered
    entered = Some(step)
  }

  /** Whether all rows of `step` have been added, and their files written. */
  def isComplete(step: Int): Boolean = complete(step)

  /** All files of the base, once all rows are added. */
  def finish(): Seq[SstFile] = {
    finishOpen()
    files.values.flatten.toSeq
  }

  /** The files of a step's base, which are the caller's from now on. */
  def take(step: Int): Seq[SstFile] = {
    val taken = files.remove(step).getOrElse(Vector.empty)
    taken.foreach(f => ShippingThreads.stagedBytes.addAndGet(-f.bytes))
    taken
  }

  /** Writes a file of the changes of `bins`; `None` if there are none. */
  def write(families: Iterable[NumberedFamily], bins: Seq[Int], changes: StagingStore): Option[SstFile] = {
    families.toSeq.sortWith((a, b) => java.util.Arrays.compareUnsigned(a.prefix, b.prefix) < 0).foreach { family =>
      changes.foreachChange(family, bins)(writer.put, writer.delete)
    }
    writer.finish(isInternal = false)
  }

  def discard(file: SstFile): Unit = file.file.delete()

  /** Forgets all rows, also when there is no room to write down what was begun. */
  def clear(): Unit = {
    open = None
    writer.abandon()
    files.keys.toSeq.foreach(take(_).foreach(discard))
  }

  override def close(): Unit = {
    clear()
    writer.close()
  }

  private def finishOpen(): Unit = {
    open.foreach { case (step, family) =>
      Faults.at("stage.file", step)
      writer.finish(family.isInternal).foreach { file =>
        ShippingThreads.stagedBytes.addAndGet(file.bytes)
        files(step) = files(step) :+ file
      }
    }
    open = None
  }
}
