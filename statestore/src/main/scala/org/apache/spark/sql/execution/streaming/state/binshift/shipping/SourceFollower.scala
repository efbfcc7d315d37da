package org.apache.spark.sql.execution.streaming.state.binshift.shipping

import java.util.concurrent.{ConcurrentHashMap, ScheduledFuture, TimeUnit}

import scala.util.Using
import scala.util.control.NonFatal

import org.apache.spark.sql.execution.streaming.state.binshift.{Faults, OrWarn}
import org.apache.spark.sql.execution.streaming.state.binshift.recovery.{CheckpointedBins, CommittedChanges}
import org.apache.spark.sql.execution.streaming.state.binshift.routing.{EpochRouting, ShippingOrder}
import org.apache.spark.sql.execution.streaming.state.binshift.storage.RocksDBArguments
import org.apache.spark.sql.execution.streaming.state.StateStoreId
import org.apache.spark.util.Utils

/**
 * Makes progress with all copies that stores of this executor make of one source's bins in an order. Each copy gets a shipment of
 * its own from the source's executor, but the source's changelogs, and its checkpoint if necessary, are read once for all copies.
 *
 * It works in turns, one at a time, on the threads of [[ShippingThreads.staging]]. If one copy fails, the others continue.
 */
private[binshift] final class SourceFollower private (
    source: StateStoreId, order: ShippingOrder, routing: EpochRouting, arguments: RocksDBArguments) extends OrWarn {
  import SourceFollower._

  @volatile private var copies = Vector.empty[StagedCopy]
  private var turn: Option[ScheduledFuture[_]] = None
  private var isRunning = false
  private var isWoken = false
  private var delayMs = MinDelayMs
  private val committed = new CommittedChanges(source, routing, arguments)
  /** How many times in a row the next changelog couldn't be read. */
  private var misses = 0

  /** Called when there may be something to do. */
  def wake(): Unit = synchronized {
    if (isRunning) isWoken = true else schedule(0)
  }

  private def add(copy: StagedCopy): Unit = {
    copies = copies :+ copy
    wake()
  }

  /** @return whether no copy is left */
  private def remove(copy: StagedCopy): Boolean = synchronized {
    copies = copies.filterNot(_ eq copy)
    if (copies.isEmpty) {
      turn.foreach(_.cancel(false))
      // On another thread, because a turn may be looking something up.
      ShippingThreads.freeing.execute(() => Utils.tryLogNonFatalError(committed.close()))
    }
    copies.isEmpty
  }

  private def schedule(ms: Long): Unit = {
    turn.foreach(_.cancel(false))
    turn = Some(ShippingThreads.staging.schedule((() => run()): Runnable, ms, TimeUnit.MILLISECONDS))
  }

  private def run(): Unit = if (begin()) {
    var isBusy = false
    try orWarn(s"could not make progress with the copies from $source; the next turn tries again") { isBusy = bringOn() }
    finally end(isBusy)
  }

  private def begin(): Boolean = synchronized {
    val isFirst = !isRunning && copies.nonEmpty
    if (isFirst) {
      isRunning = true
      isWoken = false
    }
    isFirst
  }

  /**
   * Schedules the next turn: soon if there is something to do or an epoch waits, and otherwise after longer and longer delays.
   */
  private def end(isBusy: Boolean): Unit = synchronized {
    isRunning = false
    val isAwaited = order.isAtSwitch || order.isOnDemand && copies.exists(_.isAskedFor)
    val longest = if (isAwaited) MinDelayMs else MaxDelayMs
    delayMs = if (isBusy || isWoken) MinDelayMs else math.min(delayMs * 2, longest)
    if (copies.exists(!_.isFailed)) schedule(if (isBusy) pauseMs else if (isWoken) 0 else delayMs)
  }

  /**
   * The pause between two turns that have something to do. There is none while a core is free, or if a copy is hurried: an epoch
   * waits for it, the next epoch takes it, or it has fallen behind.
   */
  private def pauseMs: Long =
    if (order.isAtSwitch || copies.exists(_.isHurried) || ExecutorLoad.hasFreeCore) 0 else BusyDelayMs

  /** @return whether something was done, so that more may be possible */
  private def bringOn(): Boolean = {
    val all = copies
    // When the first store of this executor enters an epoch, all earlier versions are committed.
    val begun = all.map(_.begun).maxOption.getOrElse(-1L)
    val received = all.map(_.receive(committed))
    received.contains(true) || readCheckpoint(all, begun) || follow(all, begun) ||
    all.map(_.prepareDue(begun)).contains(true)
  }

  /**
   * Reads the checkpoint for copies whose shipment can't be used, or that failed and are made again. Their base is the newest
   * version instead of the order's base, which may have been deleted.
   */
  private def readCheckpoint(all: Seq[StagedCopy], begun: Long): Boolean = {
    val base = if (order.isAhead) begun else order.base
    val wanting = if (begun < order.base) Nil else all.filter(_.wantsCheckpoint)
    if (wanting.isEmpty) false
    else {
      locked(wanting) {
        val parts = for (copy <- wanting; (part, bins) <- copy.beginCheckpoint(base)) yield (copy, part, bins)
        def requireWanted(): Unit = if (!wanting.exists(_.isReading)) throw new Cancelled
        try {
          if (parts.nonEmpty) {
            // Not those of the private copy that is read, because changelogs have the numbers that families have in the source.
            val families = Using.resource(new CommittedChanges(source, routing, arguments))(_.familiesAt(base, begun))
            wanting.foreach(_.beginFamilies(families))
            new CheckpointedBins(source, routing, wanting.head.arguments).foreachStoredRow(
              base, parts.indices.map(i => i -> parts(i)._3))(requireWanted()) { (i, family, key, value) =>
              val (copy, part, _) = parts(i)
              if (copy.isReading) copy.addStored(part, family, key, value) else requireWanted()
            }
          }
          wanting.foreach(_.endCheckpoint())
        } catch {
          case _: Cancelled => logInfo(s"the checkpoint of $source is read no further: no copy wants it any more")
          case NonFatal(e) => wanting.foreach(_.failCheckpoint(e))
        }
      }
      true
    }
  }

  /** Applies the next changelog to the copies that are furthest behind. */
  private def follow(all: Seq[StagedCopy], begun: Long): Boolean = {
    val following = all.filter(c => c.isStaged && order.isAhead)
    following.map(_.version).minOption.filter(_ < begun).exists { version =>
      val group = following.filter(_.version == version)
      try {
        Faults.at("changelog.read", source.partitionId)
        locked(group)(advance(group.filter(c => c.isStaged && c.version == version), version + 1, begun))
        misses = 0
        true
      } catch {
        case NonFatal(e) if misses < MaxMisses =>
          misses += 1
          logWarning(s"the changes of version ${version + 1} of $source could not be read; they are read again", e)
          false
        case NonFatal(e) =>
          misses = 0
          locked(group)(group.foreach(_.fail(e)))
          true
      }
    }
  }

  /**
   * Applies a changelog. Throws if it can't be read and no copy has changed yet; copies that may have changed in part are made
   * again.
   */
  private def advance(members: Seq[StagedCopy], version: Long, begun: Long): Unit = {
    val ofBin = members.flatMap(c => c.binsHeld.map(_ -> c)).toMap
    var isBegun = false
    try {
      if (ofBin.nonEmpty) {
        // Copies that were begun later may know more families.
        committed.reading(version, begun, CopiedFamilies.orDamaged(members.flatMap(_.theirs).toMap))(_.foreach { change =>
          ofBin.get(change.bin).foreach { copy =>
            isBegun = true
            copy.accept(change)
          }
        })
      }
      members.foreach(_.advanced())
    } catch {
      case NonFatal(e) if isBegun => members.foreach(_.fail(e))
    }
  }
}

private[binshift] object SourceFollower {
  private val MinDelayMs = 10L
  private val MaxDelayMs = 320L
  /** A few times as long as a turn takes. */
  private val BusyDelayMs = 150L

  /** How many times a changelog is read again before the copies that need it are made again. */
  private val MaxMisses = 3

  private val followers = new ConcurrentHashMap[(String, StateStoreId), SourceFollower]()

  /** Hands `copy` to the follower of its source in the order, creating the follower if necessary. */
  def join(copy: StagedCopy, order: ShippingOrder, routing: EpochRouting): SourceFollower =
    followers.compute((order.id, copy.source),
      (_, known) => {
        val follower = Option(known).getOrElse(new SourceFollower(copy.source, order, routing, copy.arguments))
        follower.synchronized(follower.add(copy))
        follower
      })

  /** Called when there may be something to do for copies from `source`. */
  def wake(source: StateStoreId, order: ShippingOrder): Unit = Option(followers.get((order.id, source))).foreach(_.wake())

  def leave(copy: StagedCopy, order: ShippingOrder): Unit =
    followers.computeIfPresent((order.id, copy.source), (_, follower) => if (follower.remove(copy)) null else follower)

  /** Runs `body` with the locks of all copies, which are taken in order to exclude deadlocks. */
  private def locked(copies: Seq[StagedCopy])(body: => Unit): Unit = copies match {
    case first +: rest => first.exclusively(locked(rest)(body))
    case _ => body
  }
}
