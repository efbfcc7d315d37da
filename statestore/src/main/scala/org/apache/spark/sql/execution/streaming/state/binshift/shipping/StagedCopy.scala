package org.apache.spark.sql.execution.streaming.state.binshift.shipping

import java.io.File
import java.util.concurrent.TimeUnit
import java.util.concurrent.locks.ReentrantLock

import scala.util.Using
import scala.util.control.NonFatal

import org.apache.spark.sql.execution.streaming.state.binshift.{BinshiftConf, Faults, OrWarn, StateMachine}
import org.apache.spark.sql.execution.streaming.state.binshift.checkpoint.CommittedFile
import org.apache.spark.sql.execution.streaming.state.binshift.keys.NumberedFamily
import org.apache.spark.sql.execution.streaming.state.binshift.recovery.{Change, CommittedChanges}
import org.apache.spark.sql.execution.streaming.state.binshift.recovery.CommittedChanges.Families
import org.apache.spark.sql.execution.streaming.state.binshift.routing.{EpochRouting, ShippedBin, ShippingOrder}
import org.apache.spark.sql.execution.streaming.state.binshift.statistics.RowsByBin
import org.apache.spark.sql.execution.streaming.state.binshift.storage._
import org.apache.spark.sql.execution.streaming.state.StateStoreId
import org.apache.spark.util.Utils

/**
 * One store's copy of the bins that it gets from another store in an order. It consists of files with the rows at a base version,
 * which come from the source's executor or, failing that, from its checkpoint; and of the changes that the source has committed
 * since, which come from its changelogs.
 *
 * A changelog is read once the next epoch has begun, so it contains what was committed and nothing else. That's why failed
 * attempts and repeated epochs leave no trace here.
 *
 * A shipment contains the order's base version. A copy from the checkpoint has the newest version of that moment, and only the
 * steps that are still to come. So a failed copy can be made again, a few times, whatever files were deleted meanwhile.
 *
 * Thread-safe: the [[SourceFollower]] makes progress, and holds the lock for anything that concerns several copies; the store's
 * task calls the rest.
 *
 * @param source   store that the bins come from
 * @param families families of the store that gets them, by name
 * @param dir      directory of this copy
 */
private[binshift] final class StagedCopy(
    val source: StateStoreId,
    target: Int,
    order: ShippingOrder,
    bins: Seq[ShippedBin],
    families: Map[String, NumberedFamily],
    dir: File,
    routing: EpochRouting,
    val arguments: RocksDBArguments,
    conf: BackgroundConf) extends OrWarn {
  import CopyState._
  import StagedCopy._

  private val parts = new CopyParts(bins)
  private val mapping = new CopiedFamilies(families, arguments)
  private val files = new BaseFiles(dir, arguments.conf)
  /** Set once the copy is complete; `None` if it is taken at its base, before any changes. */
  private var changes: Option[CopiedChanges] = None
  private val shipment = new IncomingShipment(order, source, target, conf)
  private var attempt: Option[String] = None
  /** Bytes that were read from the checkpoint and aren't charged to the pace yet. */
  private var uncharged = 0L
  private val failures = new CopyFailures(source, target, order.isAhead)
  private val catchUp = new CatchUp

  private val lock = new ReentrantLock()

  /** Changed with the lock. */
  private val states = new StateMachine[CopyState](s"$target: the copy of the bins of $source", CopyState.Next, Fetching)
  private def state: CopyState = states.now
  @volatile private var isCancelled = false
  @volatile private var isShipped = true
  @volatile private var heard = false
  @volatile private var bytes = 0L
  @volatile private var equalTo = order.base
  @volatile private var epoch = -1L
  @volatile private var next = order.firstStep
  @volatile private var due: Option[Int] = None
  @volatile private var askedAt = System.nanoTime() - AskedNs

  /** True if the copy is complete, and of the source's committed attempt. */
  def isStaged: Boolean = state == Staged

  /** True if there will be no copy. */
  def isFailed: Boolean = state == Failed

  /** True if a step should wait for it: it is incomplete, or behind its source and catching up. */
  def isAwaited: Boolean = state match {
    case Failed => false
    case Staged => order.isAhead && catchUp.isAwaited(epoch, epoch - equalTo)
    case _ => true
  }

  /** True if its turns must not be put off. */
  def isHurried: Boolean = isAskedFor || due.nonEmpty || state == Staged && epoch - equalTo > CatchUp.MaxLag

  /** True if its pieces are fetched without keeping to the pace, because an epoch waits for them. */
  private def isUnpaced: Boolean = order.isAtSwitch || isHurried

  /** True while a task waits for a bin of it that comes on demand. */
  def isAskedFor: Boolean = System.nanoTime() - askedAt < AskedNs

  /** True if the source's executor has announced that it sends, although its turn may be still to come. */
  def isHeard: Boolean = heard

  /** True if the rows came from the source's executor rather than from its checkpoint. */
  def wasShipped: Boolean = isShipped

  /**
   * Bytes of the rows that have arrived, even if they weren't used. Each version that the copy follows adds at least one, so a
   * growing number shows that the copy makes progress.
   */
  def bytesCopied: Long = bytes

  /** The version that the order asks to copy. */
  def base: Long = order.base

  /** The version of the source that a staged copy is equal to. */
  def version: Long = equalTo

  /** The newest epoch that this copy's store knows to have begun. Versions up to it are committed. */
  def begun: Long = epoch

  def sourcePartition: Int = source.partitionId

  /** The attempt of the source's task that made the shipment; `None` if the rows were read from the checkpoint. */
  def attemptRead: Option[String] = attempt

  /**
   * Called when the store loads `version`, before its switch. Doesn't wait for a turn that takes long.
   *
   * @param nextStep the first step that hasn't taken effect at an epoch up to this one
   * @param dueStep  the step that takes effect at the next epoch, if one does
   */
  def begin(version: Long, nextStep: Int, dueStep: Option[Int]): Unit = {
    if (state == Staged) catchUp.begin(version, version - equalTo)
    epoch = version
    next = nextStep
    due = dueStep
  }

  /**
   * Takes in a piece of the shipment, or finishes it. Returns whether anything was done, so that more may be possible.
   *
   * @param changes what the source has committed
   */
  def receive(changes: CommittedChanges): Boolean = exclusively {
    state match {
      case Fetching => (isUnpaced || ShippingThreads.mayReceive()) && guarded(fetch())
      case Fetched if epoch >= order.base => guarded(finishFetching(changes))
      case _ => false
    }
  }

  /** Writes files with the changes for the step of the next epoch. Returns whether there was anything to do. */
  def prepareDue(begun: Long): Boolean = exclusively {
    state == Staged && equalTo >= begun &&
    due.filter(parts.isHeld).exists(step => changes.exists(c => guarded(c.write(step, parts.binsOf(step)))))
  }

  /**
   * Hands over the copy for `step`. The caller ingests the files in their order, and then applies the changes of the versions
   * after `version`, up to `upTo`. Returns `None` if there is no complete copy, because waiting for one might mean waiting for a
   * checkpoint to be read; or if it was handed over before, for example to a task that then failed.
   */
  def take(step: Int, upTo: Long): Option[TakenCopy] = if (!isStaged) None
  else exclusively {
    // A task of an earlier epoch may still run although nothing waits for it. It must not see later changes.
    val isHere = state == Staged && parts.isLeft(step) && equalTo <= upTo
    if (isHere) parts.handOver(step)
    var taken: Option[TakenCopy] = None
    if (isHere) guarded {
      val (later, more) = changes.fold((Seq.empty[File], RowsByBin()))(_.take(step, parts.binsOf(step)))
      val (base, rows) = files.take(step)
      taken = Some(TakenCopy(base.map(_.file), later, RowsByBin.sum(Seq(rows, more)), equalTo))
      if (parts.binsLeft.isEmpty) releaseChanges()
      true
    }
    taken
  }

  /**
   * Hands over the bins that have arrived on demand since the last call, even if the copy as a whole isn't here. That works
   * because the base is the loaded version, so there are no changes to follow. Returns nothing if the lock is held for long,
   * because a piece is being fetched, perhaps from a machine that is gone, or a checkpoint is being read.
   */
  def takeReady(): Seq[(Seq[Int], TakenCopy)] =
    if (!parts.isAnyReady) Nil
    else soon[Seq[(Seq[Int], TakenCopy)]](Nil) {
      val isUsable = parts.isAnyReady && guarded(requireCommitted(CommittedChanges.idOf(source, order.base, routing,
            arguments))) && (state == Fetching || state == Fetched || state == Staged)
      if (!isUsable) Nil
      else parts.handOverReady { (part, bins) =>
        val (base, rows) = files.take(part)
        (bins, TakenCopy(base.map(_.file), Nil, rows, equalTo))
      }
    }

  /** True if `bin` was handed over, maybe to a task that then failed. It is handed over only once. */
  def isGone(bin: Int): Boolean = parts.isHandedOver(bin)

  /**
   * Asks the source to send `bin` before the others, unless it was asked already or the lock is held for long. If that fails, the
   * bin comes in its turn. Returns whether it has asked.
   */
  def request(bin: Int): Boolean = {
    askedAt = System.nanoTime()
    // Doesn't wait for the lock while a checkpoint is read.
    state == Fetching && soon(false)(
      state == Fetching && orWarn(s"$target could not ask $source for bin $bin", false)(shipment.request(bin, epoch)))
  }

  /** Calls `consume` for each change of the bins of `step` that the source committed as `ofVersion`. */
  def foreachChange(ofVersion: Long, step: Int)(consume: Change => Unit): Unit =
    Using.resource(new CommittedChanges(source, routing, arguments))(_.reading(
        ofVersion, ofVersion, CopiedFamilies.orDamaged(theirs))(
        _.filter(change => parts.of(change.bin).contains(step)).foreach(consume)))

  /**
   * Marks the copy as no longer needed, so that nobody continues to read a checkpoint for it. Unlike `close`, doesn't wait for
   * the lock.
   */
  def cancel(): Unit = isCancelled = true

  def close(): Unit = exclusively {
    states.become(Failed)
    parts.forgetReady()
    shipment.close()
    try files.close()
    finally closeChanges()
  }

  /** Runs `body` with the copy's lock. */
  def exclusively[T](body: => T): T = {
    lock.lock()
    try body
    finally lock.unlock()
  }

  /** Like `exclusively`, for a task that can't wait: returns `otherwise` if the lock is held for long. */
  private def soon[T](otherwise: T)(body: => T): T =
    if (!lock.tryLock(LockMs, TimeUnit.MILLISECONDS)) otherwise
    else
      try body
      finally lock.unlock()

  // Only the follower calls the methods below, and it holds the copy's lock.

  /** True if the checkpoint should be read for this copy now. */
  def wantsCheckpoint: Boolean = state == Damaged && !isCancelled && failures.isPauseOver

  /** True if the copy needs more of the checkpoint that is being read. */
  def isReading: Boolean = state == Reading && !isCancelled

  /** Begins the copy again, from the checkpoint at `version`. Returns the parts that it needs, with their bins. */
  def beginCheckpoint(version: Long): Seq[(Int, Seq[Int])] = if (state != Damaged) Nil
  else {
    states.become(Reading)
    isShipped = false
    attempt = None
    equalTo = version
    mapping.clear()
    parts.begin(step => !order.isAhead || step >= next)
  }

  /** Called when the checkpoint couldn't be read. */
  def failCheckpoint(e: Throwable): Unit = if (state == Reading || state == Fetched) fail(e)

  /** Adds the families that the source has at the version that is read. */
  def beginFamilies(theirs: Families): Unit = mapping.add(theirs.values)

  /** Adds a row from the checkpoint. */
  def addStored(part: Int, theirs: NumberedFamily, key: Array[Byte], value: Array[Byte]): Unit = guarded {
    add(part, theirs, key, value)
    uncharged += key.length + value.length
    if (uncharged >= ChargedBytes) {
      // If bins are not copied ahead, a task may wait for this copy, or for one that is read together with it.
      if (order.isAhead) ShippingThreads.receivedOfCheckpoint(uncharged, conf.maxBytesPerSecond, conf.areAllCoresBusy)
      uncharged = 0
    }
    true
  }

  /** Called when all rows were read. Does nothing if the copy has failed meanwhile. */
  def endCheckpoint(): Unit = if (isReading) guarded {
    files.finishPart()
    if (order.isOnDemand) parts.setAllReady()
    states.become(Fetched)
    true
  }

  /** The bins whose changes the copy needs. */
  def binsHeld: Seq[Int] = parts.binsLeft

  /** The families that the source has. */
  def theirs: Families = mapping.theirs

  /** Takes in a change of one of its bins, from the version after the one that it is equal to. */
  def accept(change: Change): Unit = if (state == Staged) guarded {
    Faults.at("changelog.change", target)
    changes.foreach(_.add(parts.of(change.bin).get, change, mapping.here(change.family)))
    bytes += change.bytes
    true
  }

  /** Called when all changes of the next version were accepted. */
  def advanced(): Unit = if (state == Staged) {
    equalTo += 1
    bytes += 1
  }

  /** Handles a failure: ends the copy, or has it made again later. */
  def fail(e: Throwable): Unit = if (state != Failed) {
    if (state == Fetching) shipment.giveUp()
    states.become(if (failures.isAnewAfter(e, wasStaged = state == Staged)) Damaged else Failed)
    parts.forgetReady()
    try files.clear()
    finally closeChanges()
  }

  private def closeChanges(): Unit = {
    changes.foreach(_.close())
    changes = None
  }

  /** Closes the changes on another thread, so that the store's task doesn't wait. */
  private def releaseChanges(): Unit = {
    changes.foreach(c => ShippingThreads.freeing.execute(() => Utils.tryLogNonFatalError(c.close())))
    changes = None
  }

  private def fetch(): Boolean = {
    val received = shipment.receive(epoch) { (chunk, index) =>
      if (!isUnpaced) ShippingThreads.received(ShipmentFormat.sizeOf(chunk), conf.maxBytesPerSecond, conf.areAllCoresBusy)
      ShipmentFormat.read(chunk, order.base, index)(endPart)(add)
    }
    heard = shipment.isHeard
    received.foreach { header =>
      if (attempt.exists(_ != header.attempt)) throw new DamagedShipment("it mixes two attempts of a task")
      attempt = Some(header.attempt)
      mapping.add(header.families)
      if (header.isLast) states.become(Fetched)
    }
    received.isDefined
  }

  /** Completes a fetched copy, if it comes from the committed attempt. */
  private def finishFetching(committed: CommittedChanges): Boolean = {
    requireCommitted(committed.id(order.base, epoch))
    val all = files.finish()
    changes = Option.when(order.isAhead)(
      new CopiedChanges(all, files, families.values, arguments, new File(dir, s"changes-${failures.count}")))
    Faults.at("stage.done", target)
    states.become(Staged)
    catchUp.begin(epoch, epoch - equalTo)
    true
  }

  /**
   * Fails if the shipment isn't from the committed attempt of the source's task, which is known once the base is committed. A
   * copy from the checkpoint always is.
   *
   * @param id the id under which the base was committed
   */
  private def requireCommitted(id: => Option[String]): Boolean = {
    if (attempt.exists(_ != CommittedFile.attempt(source, order.base, id, arguments.hadoopConf))) {
      throw new DamagedShipment("it is of an attempt of the source's task that was not committed")
    }
    true
  }

  private def endPart(part: Int, bins: Seq[Int]): Unit = {
    files.finishPart()
    parts.setReady(part, bins)
  }

  private def add(part: Int, theirs: NumberedFamily, key: Array[Byte], value: Array[Byte]): Unit = {
    val family = mapping.here(theirs)
    files.add(part, family, family.nativeKey(key), value)
    bytes += key.length + value.length
    if (ShippingThreads.stagedBytes.get > conf.maxStagedBytes) {
      throw new IllegalStateException(s"the copies on this executor would take more than ${conf.maxStagedBytes} bytes; raise " +
        s"${BinshiftConf.Prefix}ship.maxStagedBytes, or move fewer bins with each step")
    }
  }

  private def guarded(body: => Boolean): Boolean =
    try body
    catch {
      case NonFatal(e) =>
        fail(e)
        state == Damaged
    }
}

private[binshift] object StagedCopy {
  private val ChargedBytes = 256L << 10

  /** A task that waits for a bin asks for it at shorter intervals than this. */
  private val AskedNs = 1000000000L

  /** How long a task waits for the lock before it checks whether the copy makes progress. */
  private val LockMs = 20L
}
