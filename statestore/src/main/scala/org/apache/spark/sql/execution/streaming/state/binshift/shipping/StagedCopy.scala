package org.apache.spark.sql.execution.streaming.state.binshift.shipping

import java.io.File
import java.util.concurrent.TimeUnit
import java.util.concurrent.locks.ReentrantLock

import scala.util.control.NonFatal

import org.apache.spark.internal.Logging
import org.apache.spark.sql.execution.streaming.state.binshift.Faults
import org.apache.spark.sql.execution.streaming.state.binshift.checkpoint.CommittedFile
import org.apache.spark.sql.execution.streaming.state.binshift.keys.NumberedFamily
import org.apache.spark.sql.execution.streaming.state.binshift.routing.{EpochRouting, ShippedBin, ShippingOrder}
import org.apache.spark.sql.execution.streaming.state.binshift.statistics.RowCounts
import org.apache.spark.sql.execution.streaming.state.binshift.storage._
import org.apache.spark.sql.execution.streaming.state.{RecordType, StateStoreId}
import org.apache.spark.util.Utils

/**
 * The copy of the bins that one store gets from another one in an order: files with the rows as they
 * were at a base version, fetched from the source's executor or else read from its checkpoint; then the
 * changes that the source committed since, read from its changelogs.
 *
 * Changes come from changelogs, which hold what was committed and nothing else, once the epoch after
 * them has begun. So an attempt that failed, or an epoch that is run again, leaves no trace here.
 *
 * A shipment is of the order's base. A copy from the checkpoint is of the newest version when it is made, and holds the
 * steps that are still to come; so a copy that failed is made anew, some times, whatever has been purged since.
 *
 * Thread-safe: the [[SourceFollower]] brings it on, with its lock for what concerns several copies; the store's task
 * calls the rest.
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
    conf: BackgroundConf) extends Logging {
  import StagedCopy._

  private val parts = new CopyParts(bins)
  private val mapping = new CopiedFamilies(families, arguments)
  private val files = new BaseFiles(dir, arguments.conf)
  /** Once the copy is whole; none if it is taken at its base, before anything changes. */
  private var changes: Option[CopiedChanges] = None
  private val shipment = new IncomingShipment(order, source, target, conf)
  private var attempt: Option[String] = None
  /** Bytes of the checkpoint that were read since the pace was asked. */
  private var uncharged = 0L
  private val failures = new CopyFailures(source, target, order.isUrgent)
  private val catchUp = new CatchUp

  private val lock = new ReentrantLock()

  @volatile private var state: State = Fetching
  @volatile private var isCancelled = false
  @volatile private var isShipped = true
  @volatile private var heard = false
  @volatile private var bytes = 0L
  @volatile private var equalTo = order.base
  @volatile private var epoch = -1L
  @volatile private var next = order.firstStep
  @volatile private var due: Option[Int] = None
  @volatile private var askedAt = System.nanoTime() - AskedNs

  /** Whether the copy is whole, and was of what the source committed. */
  def isStaged: Boolean = state == Staged

  /** Whether there will be no copy. */
  def isFailed: Boolean = state == Failed

  /** Whether a step waits for it: it is not whole, or behind its source and gaining. */
  def isAwaited: Boolean = state match {
    case Failed => false
    case Staged => !order.isUrgent && catchUp.isAwaited(epoch, epoch - equalTo)
    case _ => true
  }

  /** Whether its turns are not to be put off. */
  def isHurried: Boolean = isAskedFor || due.nonEmpty || state == Staged && epoch - equalTo > CatchUp.MaxLag

  /** Whether its pieces are fetched as soon as they are there: an epoch waits for them. */
  private def isUnpaced: Boolean = order.isUrgent && !order.isOnDemand || isHurried

  /** Whether a task waits for a bin of it that comes on demand. */
  def isAskedFor: Boolean = System.nanoTime() - askedAt < AskedNs

  /** Whether the source's executor has said that it sends, though its turn may be to come. */
  def isHeard: Boolean = heard

  /** Whether the rows came from the source's executor rather than from its checkpoint. */
  def wasShipped: Boolean = isShipped

  /**
   * Bytes of the rows that came so far, whether they were of use or not. A version of the source that is followed counts as
   * one at least, so that the number says whether a copy gets on.
   */
  def bytesCopied: Long = bytes

  /** The version that was to be copied first. */
  def base: Long = order.base

  /** The version of the source that a staged copy is equal to. */
  def version: Long = equalTo

  /** The epoch that has begun, as far as this copy's store knows: versions up to it are committed. */
  def begun: Long = epoch

  def sourcePartition: Int = source.partitionId

  /** The attempt of the source's task that made what was shipped; `None` if it was read from the checkpoint. */
  def attemptRead: Option[String] = attempt

  /**
   * Called when the store loads `version`, before its switch; does not wait for a turn that takes long.
   *
   * @param nextStep the first step that has not taken effect at an epoch up to this one
   * @param dueStep  the step that takes effect at the next epoch, if one does
   */
  def begin(version: Long, nextStep: Int, dueStep: Option[Int]): Unit = {
    if (state == Staged) catchUp.begin(version, version - equalTo)
    epoch = version
    next = nextStep
    due = dueStep
  }

  /**
   * Takes in a piece of the shipment, or makes it count; whether something was done, so that more may be possible.
   *
   * @param ids those of the source
   */
  def receive(ids: SourceIds): Boolean = exclusively {
    state match {
      case Fetching => (isUnpaced || ShippingThreads.mayReceive()) && guarded(fetch())
      case Fetched if epoch >= order.base => guarded(finishFetching(ids))
      case _ => false
    }
  }

  /** Makes files of the changes for the step that the next epoch takes; whether that was to be done. */
  def prepareDue(begun: Long): Boolean = exclusively {
    state == Staged && equalTo >= begun &&
    due.filter(parts.isHeld).exists(step => changes.exists(c => guarded(c.write(step, parts.binsOf(step)))))
  }

  /**
   * Hands over what was copied for `step`; `None` if there is no copy, or it was handed over before, as
   * to a task that then failed. The files are to be taken in, in their order; then the changes of the
   * versions after `version`, up to `upTo`. What is not whole is not waited for, because a checkpoint may be read meanwhile.
   */
  def take(step: Int, upTo: Long): Option[TakenCopy] = if (!isStaged) None
  else exclusively {
    // A task of an earlier epoch, which runs on though nobody waits for it, must not see later changes.
    val isHere = state == Staged && parts.isLeft(step) && equalTo <= upTo
    if (isHere) parts.handOver(step)
    var taken: Option[TakenCopy] = None
    if (isHere) guarded {
      val (later, more) = changes.fold((Seq.empty[File], RowCounts.Zero))(_.take(step, parts.binsOf(step)))
      val base = files.take(step)
      taken = Some(TakenCopy(base.map(_.file), later, base.foldLeft(more)(_ + _.rows), equalTo))
      if (parts.binsLeft.isEmpty) releaseChanges()
      true
    }
    taken
  }

  /**
   * Hands over the bins that came on demand since it was called last, though the copy as a whole is not
   * here: the base is the version that is loaded, so that nothing changes any more. None while the lock is held for long: a piece is
   * fetched, maybe from a machine that is gone, or a checkpoint is read.
   */
  def takeReady(): Seq[(Seq[Int], TakenCopy)] =
    if (!parts.isAnyReady) Nil
    else soon[Seq[(Seq[Int], TakenCopy)]](Nil) {
      val isUsable = parts.isAnyReady && guarded(requireCommitted(SourceChanges.idOf(source, order.base, routing,
            arguments))) && (state == Fetching || state == Fetched || state == Staged)
      if (!isUsable) Nil
      else parts.handOverReady { (part, bins) =>
        val base = files.take(part)
        (bins, TakenCopy(base.map(_.file), Nil, base.foldLeft(RowCounts.Zero)(_ + _.rows), equalTo))
      }
    }

  /** Whether `bin` was handed over, as to a task that then failed; it will not be again. */
  def isGone(bin: Int): Boolean = parts.isHandedOver(bin)

  /**
   * Asks the source to send `bin` before the others; once, but for when the lock is held for long. If that fails, the bin comes in its
   * turn. Whether it did.
   */
  def request(bin: Int): Boolean = {
    askedAt = System.nanoTime()
    // Without a wait for the lock while a checkpoint is read.
    state == Fetching && soon(false)(state == Fetching && {
      try shipment.request(bin, epoch)
      catch {
        case NonFatal(e) =>
          logWarning(s"$target could not ask $source for bin $bin", e)
          false
      }
    })
  }

  /** Calls `consume` for each change of the bins of `step` that the source committed as `ofVersion`. */
  def foreachChange(ofVersion: Long, step: Int)(
      consume: (RecordType.Value, NumberedFamily, Array[Byte], Array[Byte]) => Unit): Unit =
    new SourceChanges(source, arguments, SourceChanges.idOf(source, _, routing, arguments)).foreach(ofVersion) {
      (kind, native, value) =>
        if (parts.of(binOf(native)).contains(step)) consume(kind, mapping.hereOf(native), mapping.keyIn(native), value)
    }

  /** Nobody wants it any more, so that a checkpoint is not read on for it. Does not wait for the lock, as closing does. */
  def cancel(): Unit = isCancelled = true

  def close(): Unit = exclusively {
    state = Failed
    parts.forgetReady()
    shipment.close()
    try files.close()
    finally closeChanges()
  }

  /** Runs `body` while nobody else changes the copy. */
  def exclusively[T](body: => T): T = {
    lock.lock()
    try body
    finally lock.unlock()
  }

  /** The same for a task that has to go on: `otherwise` if others have the copy for long. */
  private def soon[T](otherwise: T)(body: => T): T =
    if (!lock.tryLock(LockMs, TimeUnit.MILLISECONDS)) otherwise
    else
      try body
      finally lock.unlock()

  // What follows is for the follower alone, which holds the copy's lock.

  /** Whether the checkpoint is to be read for it now. */
  def wantsCheckpoint: Boolean = state == Damaged && !isCancelled && failures.isPauseOver

  /** Whether it wants more of the checkpoint that is being read. */
  def isReading: Boolean = state == Reading && !isCancelled

  /** Begins the copy anew, from the checkpoint as of `version`; returns the parts that are wanted, with their bins. */
  def beginCheckpoint(version: Long): Seq[(Int, Seq[Int])] = if (state != Damaged) Nil
  else {
    state = Reading
    isShipped = false
    attempt = None
    equalTo = version
    mapping.clear()
    parts.begin(step => order.isUrgent || step >= next)
  }

  /** The checkpoint could not be read. */
  def failCheckpoint(e: Throwable): Unit = if (state == Reading || state == Fetched) fail(e)

  /** The families that the source has at the version that is read. */
  def beginFamilies(theirs: Seq[NumberedFamily]): Unit = mapping.add(theirs)

  /** A row of the checkpoint that it wants. */
  def addStored(part: Int, theirs: NumberedFamily, key: Array[Byte], value: Array[Byte]): Unit = guarded {
    add(part, theirs, key, value)
    uncharged += key.length + value.length
    if (uncharged >= ChargedBytes) {
      // A task may wait for it, or for one that is read with it.
      if (!order.isUrgent) ShippingThreads.receivedOfCheckpoint(uncharged, conf.maxBytesPerSecond, conf.areAllCoresBusy)
      uncharged = 0
    }
    true
  }

  /** All rows were read; of a copy that failed on the way, nothing counts. */
  def endCheckpoint(): Unit = if (isReading) guarded {
    files.finishPart()
    if (order.isOnDemand) parts.setAllReady()
    state = Fetched
    true
  }

  /** The bins whose changes it wants. */
  def binsHeld: Seq[Int] = parts.binsLeft

  /** The bin of a native key of the source. */
  def binOf(native: Array[Byte]): Int = mapping.binOf(native)

  /** A change of one of its bins, in the version after the one that it is equal to. */
  def accept(kind: RecordType.Value, native: Array[Byte], value: Array[Byte]): Unit = if (state == Staged) guarded {
    Faults.at("changelog.change", target)
    val key = mapping.keyIn(native)
    changes.foreach(_.add(parts.of(binOf(native)).get, kind, mapping.hereOf(native), key, value))
    // A row that goes has no value.
    bytes += key.length + Option(value).fold(0)(_.length)
    true
  }

  /** All changes of the version after the one that it is equal to were accepted. */
  def advanced(): Unit = if (state == Staged) {
    equalTo += 1
    bytes += 1
  }

  /** What went wrong ends the copy, or has it made anew. */
  def fail(e: Throwable): Unit = if (state != Failed) {
    if (state == Fetching) shipment.giveUp()
    state = if (failures.isAnewAfter(e, wasStaged = state == Staged)) Damaged else Failed
    parts.forgetReady()
    try files.clear()
    finally closeChanges()
  }

  private def closeChanges(): Unit = {
    changes.foreach(_.close())
    changes = None
  }

  /** Closes them on another thread: the store's task does not wait for it. */
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
      if (header.isLast) state = Fetched
    }
    received.isDefined
  }

  /** Makes the copy count, if it is of the commit that counts. */
  private def finishFetching(ids: SourceIds): Boolean = {
    requireCommitted(ids.of(order.base, epoch))
    val all = files.finish()
    changes = Option.when(!order.isUrgent)(
      new CopiedChanges(all, files, families.values, arguments, new File(dir, s"changes-${failures.count}")))
    Faults.at("stage.done", target)
    state = Staged
    catchUp.begin(epoch, epoch - equalTo)
    true
  }

  /**
   * Whether the shipment is of the attempt that counts, which is known once the base is committed. What was read from the
   * checkpoint is of no attempt.
   *
   * @param id under which the base was committed
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
    files.add(part, family.family, family.nativeKey(key), value)
    bytes += key.length + value.length
    if (ShippingThreads.stagedBytes.get > conf.maxStagedBytes) {
      throw new IllegalStateException(s"more than ${conf.maxStagedBytes} bytes would be staged on this executor")
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

  /** Who waits for a bin asks for it more often than that. */
  private val AskedNs = 1000000000L

  /** How long a task waits for the lock before it looks whether the copy gets on. */
  private val LockMs = 20L

  private sealed trait State
  private case object Fetching extends State
  /** Without what came so far; the checkpoint is to be read, once the base is committed. */
  private case object Damaged extends State
  /** The checkpoint is being read. */
  private case object Reading extends State
  private case object Fetched extends State
  private case object Staged extends State
  private case object Failed extends State
}
