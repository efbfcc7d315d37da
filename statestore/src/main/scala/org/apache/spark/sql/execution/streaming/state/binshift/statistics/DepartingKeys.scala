package org.apache.spark.sql.execution.streaming.state.binshift.statistics

import java.nio.ByteBuffer
import java.util.concurrent.atomic.AtomicLong

import scala.collection.mutable

/**
 * Remembers the keys that a store has written since an order's base into families that are read in order, for the bins that leave
 * with one step. Such keys are scattered among those of bins that stay, so a switch that doesn't know them has to scan the family.
 *
 * It may contain too many keys, because an attempt that failed wrote them. That does no harm, because all keys of the bin are
 * removed anyway. It never contains too few: a removal counts only once its version is committed.
 *
 * Used by the store's task.
 *
 * @param budget bytes that the keys of all stores of this executor may take together
 */
private[binshift] final class DepartingKeys(budget: KeyBudget) {
  import DepartingKeys._

  private val written = mutable.Map.empty[String, mutable.HashSet[ByteBuffer]]
  private val removed = mutable.HashSet.empty[(String, ByteBuffer)]
  private var bytes = 0L
  private var areAllHere = true

  /** @param key in its stored form; the caller must not change the array afterwards */
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

  /** Approximate bytes that its keys take. */
  def size: Long = bytes

  /** Hands over the keys so far, by family, and forgets them. Called when a version is loaded. */
  def takeSoFar(): Map[String, Seq[Array[Byte]]] = {
    val all = written.view.mapValues(_.toSeq.map(_.array)).toMap
    written.clear()
    reserve(-bytes)
    all
  }

  /** Hands over the remaining keys, by family; `None` if there were too many to remember, or they were taken before. */
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
  /** Approximate bytes that an entry of the set takes besides its key. */
  private val Overhead = 100

  private def costOf(key: ByteBuffer): Long = key.remaining + Overhead
}

/** A bound on the bytes that may be remembered. Thread-safe. */
private[binshift] final class KeyBudget(max: Long) {
  private val used = new AtomicLong()

  /** Takes `bytes`, or gives them back if negative. Returns whether the total is within the bound. */
  def reserve(bytes: Long): Boolean = used.addAndGet(bytes) <= max

  /** Bytes that are taken at present. */
  def reserved: Long = used.get
}

private[binshift] object KeyBudget {
  /** The budget of this executor. */
  val here = new KeyBudget(64L << 20)
}
