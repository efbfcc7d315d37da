package org.apache.spark.sql.execution.streaming.state.binshift.shipping

import scala.collection.mutable

import org.apache.spark.sql.execution.streaming.state.binshift.routing.ShippedBin

/**
 * The parts of a copy: the bins of a step or, on demand, single bins. A part is handed over once.
 *
 * Used with the copy's lock, except for methods that say otherwise.
 */
private[binshift] final class CopyParts(bins: Seq[ShippedBin]) {
  private val parts = bins.map(b => b.bin -> b.step).toMap
  /** Parts that the copy has, or will have once it is complete. */
  private var held = bins.map(_.step).toSet
  @volatile private var handedOver = Set.empty[Int]
  /** On demand: parts that have arrived, and their bins. */
  private val ready = mutable.Map.empty[Int, Seq[Int]]
  @volatile private var hasReady = false

  /** Never changes. */
  def of(bin: Int): Option[Int] = parts.get(bin)

  /** Never changes. */
  def binsOf(part: Int): Seq[Int] = bins.filter(_.step == part).map(_.bin)

  def isHeld(part: Int): Boolean = held(part)

  /** True if the part is held and was not handed over. */
  def isLeft(part: Int): Boolean = held(part) && !handedOver(part)

  def binsLeft: Seq[Int] = bins.collect { case b if isLeft(b.step) => b.bin }

  /** May be called without the lock. */
  def isHandedOver(part: Int): Boolean = handedOver(part)

  def handOver(part: Int): Unit = handedOver += part

  /** Keeps only wanted parts, among those that were not handed over; returns them with their bins. */
  def begin(isWanted: Int => Boolean): Seq[(Int, Seq[Int])] = {
    val wanted = bins.filter(b => !handedOver(b.step) && isWanted(b.step))
    held = wanted.map(_.step).toSet
    wanted.groupMap(_.step)(_.bin).toSeq.sortBy(_._1)
  }

  def setReady(part: Int, bins: Seq[Int]): Unit = {
    ready(part) = bins
    hasReady = true
  }

  def setAllReady(): Unit = {
    ready ++= bins.filter(b => held(b.step)).groupMap(_.step)(_.bin)
    hasReady = true
  }

  /** May be called without the lock. */
  def isAnyReady: Boolean = hasReady

  /** Hands over the parts that are ready: calls `take` with each and its bins. */
  def handOverReady[T](take: (Int, Seq[Int]) => T): Seq[T] = {
    val taken = ready.toSeq.sortBy(_._1).map { case (part, bins) => take(part, bins) }
    // A part of an on-demand shipment is just a piece of it, so the bins are what was handed over.
    handedOver ++= ready.values.flatten
    forgetReady()
    taken
  }

  def forgetReady(): Unit = {
    ready.clear()
    hasReady = false
  }
}
