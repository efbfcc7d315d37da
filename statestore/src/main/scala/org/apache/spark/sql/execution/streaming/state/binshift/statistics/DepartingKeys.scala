package org.apache.spark.sql.execution.streaming.state.binshift.statistics

import java.nio.ByteBuffer

import scala.collection.mutable

/**
 * The keys that a store has written, since an order's base, into families that are read in order, of bins that leave with one
 * step. Such keys lie among those of bins that stay, and a switch that does not know them looks through the family.
 *
 * It may have keys too many, since an attempt that failed wrote them: they are removed with all others of their bin. It has none
 * too few: a removal counts once its version is committed.
 *
 * Used by the store's task.
 */
private[binshift] final class DepartingKeys {
  import DepartingKeys._

  private val written = mutable.Map.empty[String, mutable.HashSet[ByteBuffer]]
  private val removed = mutable.HashSet.empty[(String, ByteBuffer)]
  private var bytes = 0L
  private var areAllHere = true

  /** A key, in its stored form, that the caller does not change. */
  def put(family: String, key: Array[Byte]): Unit = if (areAllHere) {
    val k = ByteBuffer.wrap(key)
    if (removed.nonEmpty) removed -= family -> k
    if (written.getOrElseUpdate(family, mutable.HashSet.empty).add(k)) bytes += key.length + Overhead
    if (bytes > MaxBytes) forget()
  }

  def remove(family: String, key: Array[Byte]): Unit = if (areAllHere) {
    val k = ByteBuffer.wrap(key)
    if (written.get(family).exists(_.contains(k))) removed += family -> k
  }

  def onLoad(): Unit = removed.clear()

  def onCommit(): Unit = {
    removed.foreach { case (family, key) => if (written(family).remove(key)) bytes -= key.remaining + Overhead }
    removed.clear()
  }

  /** The keys, by family; `None` if they were too many to be remembered. */
  def all: Option[Map[String, Iterable[Array[Byte]]]] =
    Option.when(areAllHere)(written.view.mapValues(_.view.map(_.array)).toMap)

  private def forget(): Unit = {
    areAllHere = false
    written.clear()
    removed.clear()
  }
}

private object DepartingKeys {
  private val MaxBytes = 32L << 20
  /** Of an entry of the set, about. */
  private val Overhead = 100
}
