package org.apache.spark.sql.execution.streaming.state.binshift.statistics

import java.nio.ByteBuffer
import java.util.concurrent.atomic.AtomicLong

import scala.collection.mutable

/**
 * The keys that a store has written, since an order's base, into families that are read in order, of bins that leave with one
 * step. Such keys lie among those of bins that stay, and a switch that does not know them looks through the family.
 *
 * It may have keys too many, since an attempt that failed wrote them: they are removed with all others of their bin. It has none
 * too few: a removal counts once its version is committed.
 *
 * Used by the store's task.
 *
 * @param budget what the keys of all stores of this executor may take
 */
private[binshift] final class DepartingKeys(budget: KeyBudget) {
  import DepartingKeys._

  private val written = mutable.Map.empty[String, mutable.HashSet[ByteBuffer]]
  private val removed = mutable.HashSet.empty[(String, ByteBuffer)]
  private var bytes = 0L
  private var areAllHere = true

  /** A key, in its stored form, that the caller does not change. */
  def put(family: String, key: Array[Byte]): Unit = if (areAllHere) {
    val k = ByteBuffer.wrap(key)
    if (removed.nonEmpty) removed -= family -> k
    if (written.getOrElseUpdate(family, mutable.HashSet.empty).add(k) && !reserve(costOf(k))) forget()
  }

  def remove(family: String, key: Array[Byte]): Unit = if (areAllHere) {
    val k = ByteBuffer.wrap(key)
    if (written.get(family).exists(_.contains(k))) removed += family -> k
  }

  def onLoad(): Unit = removed.clear()

  def onCommit(): Unit = {
    removed.foreach { case (family, key) => if (written(family).remove(key)) reserve(-costOf(key)) }
    removed.clear()
  }

  /** What its keys take, about. */
  def size: Long = bytes

  /** The keys so far, by family, which it has no more then. Called when a version is loaded. */
  def takeSoFar(): Map[String, Seq[Array[Byte]]] = {
    val all = written.view.mapValues(_.toSeq.map(_.array)).toMap
    written.clear()
    reserve(-bytes)
    all
  }

  /** The other keys, by family, which it has no more then; `None` if they were too many to be remembered, or were taken before. */
  def take(): Option[Map[String, Iterable[Array[Byte]]]] = {
    val all = Option.when(areAllHere)(takeSoFar())
    forget()
    all
  }

  /** From now on it remembers nothing. */
  def forget(): Unit = {
    areAllHere = false
    written.clear()
    removed.clear()
    reserve(-bytes)
  }

  private def reserve(more: Long): Boolean = {
    bytes += more
    budget.reserve(more)
  }
}

private object DepartingKeys {
  /** Of an entry of the set, about. */
  private val Overhead = 100

  private def costOf(key: ByteBuffer): Long = key.remaining + Overhead
}

/** Bytes that may be remembered. Thread-safe. */
private[binshift] final class KeyBudget(max: Long) {
  private val used = new AtomicLong()

  /** Takes `bytes`, which also may be given back; whether that is within the bound. */
  def reserve(bytes: Long): Boolean = used.addAndGet(bytes) <= max

  /** Bytes that are taken. */
  def reserved: Long = used.get
}

private[binshift] object KeyBudget {
  /** That of this executor. */
  val here = new KeyBudget(64L << 20)
}
