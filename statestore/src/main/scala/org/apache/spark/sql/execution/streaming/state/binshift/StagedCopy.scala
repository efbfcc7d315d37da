package org.apache.spark.sql.execution.streaming.state.binshift

import java.io.File

import scala.collection.mutable
import scala.util.control.NonFatal

import org.apache.spark.internal.Logging
import org.apache.spark.sql.execution.streaming.state.{KeyValueChecksumEncoder, RecordType, RocksDBFileManager, StateStoreId}

/**
 * The copy of the bins that one store gets from another one in an order: files with the rows as they
 * were at the order's base version, fetched from the source's executor or else read from its
 * checkpoint; then the changes that the source committed since, read from its changelogs.
 *
 * Changes come from changelogs, which hold what was committed and nothing else, once the epoch after
 * them has begun. So an attempt that failed, or an epoch that is run again, leaves no trace here.
 *
 * Thread-safe: threads of the background call `turn`, the store's task the rest.
 *
 * @param source   store that the bins come from
 * @param families families of the store that gets them, by name
 * @param dir      directory of this copy
 */
private[binshift] final class StagedCopy(
    source: StateStoreId,
    target: Int,
    order: ShippingOrder,
    bins: Seq[ShippedBin],
    families: Map[String, NumberedFamily],
    dir: File,
    routing: EpochRouting,
    spark: RocksDBArguments,
    conf: BackgroundConf) extends Logging {
  import StagedCopy._

  private val steps = bins.map(b => b.bin -> b.step).toMap
  /** What is copied, once all of it is here; none if it is taken at its base, before anything changes. */
  private var staging: Option[StagingStore] = None
  private val files = new BaseFiles(dir, spark.conf)
  private val changed = mutable.Map.empty[Int, RowCounts].withDefaultValue(RowCounts.Zero)
  private val overlays = mutable.Map.empty[Int, SstFile]
  private val sourceFamilies = mutable.Map.empty[Option[Short], NumberedFamily]
  /** Steps, or on demand bins, that were handed over. */
  private val handedOver = mutable.Set.empty[Int]
  /** On demand: parts that are here, and their bins. */
  private val ready = mutable.Map.empty[Int, Seq[Int]]
  private val shipment = new IncomingShipment(order, source, target)
  private var attempt: Option[String] = None
  /** The version of the source that a staged copy is equal to. */
  private var version = order.base

  @volatile private var state: State = Fetching
  @volatile private var isShipped = true
  @volatile private var bytes = 0L

  /** Whether the copy is whole, and was of what the source committed. */
  def isStaged: Boolean = state == Staged

  /** Whether there will be no copy. */
  def isFailed: Boolean = state == Failed

  /** Whether the rows came from the source's executor rather than from its checkpoint. */
  def wasShipped: Boolean = isShipped

  /** Bytes of the rows that came so far, whether they were of use or not. */
  def bytesCopied: Long = bytes

  /** The version that was copied first. */
  def base: Long = order.base

  def sourcePartition: Int = source.partitionId

  def binsOf(step: Int): Seq[Int] = bins.filter(_.step == step).map(_.bin)

  /**
   * Does what can be done now.
   *
   * @param begun the epoch that has begun: versions up to it are committed
   * @param due   the step that takes effect at the next epoch, if one does
   * @return whether something was done, so that more may be possible
   */
  def turn(begun: Long, due: Option[Int]): Boolean = synchronized {
    state match {
      case Fetching => guarded(fetch(begun))
      case Damaged if begun >= order.base => guarded(readCheckpoint())
      case Fetched if begun >= order.base => guarded(settle())
      case Staged => staging.exists { store =>
        if (version < begun) guarded(advance(store)) else due.exists(step => guarded(writeOverlay(store, step)))
      }
      case _ => false
    }
  }

  /**
   * Hands over what was copied for `step`; `None` if there is no copy, or it was handed over before, as
   * to a task that then failed. The files are to be taken in, in their order; then the changes of the
   * versions after `version`.
   */
  def take(step: Int): Option[TakenCopy] = synchronized {
    Option.when(state == Staged && !handedOver(step)) {
      handedOver += step
      staging.foreach(writeOverlay(_, step))
      val taken = files.take(step)
      val rows = taken.foldLeft(changed.remove(step).getOrElse(RowCounts.Zero))(_ + _.rows)
      TakenCopy(taken.map(_.file), overlays.remove(step).map(_.file), rows, version)
    }
  }

  /**
   * Hands over the bins that came on demand since it was called last, though the copy as a whole is not
   * here: the base is the version that is loaded, so that nothing changes any more.
   */
  def takeReady(): Seq[(Seq[Int], TakenCopy)] = synchronized {
    if (ready.isEmpty || !guarded(isCommitted) || state == Damaged || state == Failed) Nil else {
      val taken = ready.toSeq.sortBy(_._1).map { case (part, bins) =>
        val base = files.take(part)
        (bins, TakenCopy(base.map(_.file), None, base.foldLeft(RowCounts.Zero)(_ + _.rows), version))
      }
      handedOver ++= ready.values.flatten
      ready.clear()
      taken
    }
  }

  /** Whether `bin` was handed over, as to a task that then failed; it will not be again. */
  def isGone(bin: Int): Boolean = synchronized(handedOver(bin))

  /** Asks the source to send `bin` before the others; once. If that fails, the bin comes in its turn. */
  def wish(bin: Int): Unit = synchronized {
    if (state == Fetching) try shipment.wish(bin) catch {
      case NonFatal(e) => logWarning(s"$target could not ask $source for bin $bin", e)
    }
  }

  /** Calls `consume` for each change of the bins of `step` that the source committed as `ofVersion`. */
  def foreachChange(ofVersion: Long, step: Int)(
      consume: (RecordType.Value, NumberedFamily, Array[Byte], Array[Byte]) => Unit): Unit =
    foreachChange(ofVersion) { (kind, family, bin, key, value) =>
      if (steps(bin) == step) consume(kind, family, key, value)
    }

  def close(): Unit = synchronized {
    state = Failed
    ready.clear()
    try files.close() finally closeStaging()
  }

  private def closeStaging(): Unit = {
    staging.foreach(_.close())
    staging = None
  }

  private def fetch(begun: Long): Boolean = {
    val received = shipment.receive(begun) { (chunk, index) =>
      ShipmentFormat.read(chunk, order.base, index)(endPart)(add)
    }
    received.foreach { header =>
      if (attempt.exists(_ != header.attempt)) throw new DamagedShipment("it mixes two attempts of a task")
      attempt = Some(header.attempt)
      header.families.foreach(f => sourceFamilies(f.number) = f)
      if (header.isLast) state = Fetched
    }
    received.isDefined
  }

  /** Makes the copy count, if it is of the commit that counts. */
  private def settle(): Boolean = {
    isCommitted
    val all = files.finish()
    staging = Option.when(!order.isUrgent)(new StagingStore(dir))
    // Changes are counted by what was there before.
    for (store <- staging; file <- all) store.addCopied(file.file)
    Faults.at("stage.done", target)
    state = Staged
    true
  }

  /** Whether the shipment is of the attempt that counts, which is known once the base is committed. */
  private def isCommitted: Boolean = {
    if (attempt.exists(_ != CommittedFile.attempt(source, order.base, checkpointId(order.base), spark.hadoopConf))) {
      throw new DamagedShipment("it is of an attempt of the source's task that was not committed")
    }
    true
  }

  private def advance(store: StagingStore): Boolean = {
    foreachChange(version + 1)(applyTo(store))
    version += 1
    overlays.values.foreach(files.discard)
    overlays.clear()
    true
  }

  private def applyTo(store: StagingStore)(
      kind: RecordType.Value, family: NumberedFamily, bin: Int, key: Array[Byte], value: Array[Byte]): Unit = {
    val native = family.nativeKey(key)
    val before = store.get(native)
    kind match {
      case RecordType.PUT_RECORD => store.put(native, value)
      case RecordType.MERGE_RECORD =>
        store.put(native, before.fold(value)(_ ++ RocksDBFields.delimiter(spark.conf).getBytes ++ value))
      case RecordType.DELETE_RECORD => store.delete(native)
      case other => throw new DamagedShipment(s"the source's changelog has a record of kind $other")
    }
    val n = (if (kind == RecordType.DELETE_RECORD) 0 else 1) - before.size
    changed(steps(bin)) += (if (family.family.isInternal) RowCounts(0, n) else RowCounts(n, 0))
  }

  private def writeOverlay(store: StagingStore, step: Int): Boolean = !overlays.contains(step) && {
    files.write(families.values, binsOf(step), store).exists { file =>
      overlays(step) = file
      true
    }
  }

  private def foreachChange(ofVersion: Long)(
      consume: (RecordType.Value, NumberedFamily, Int, Array[Byte], Array[Byte]) => Unit): Unit = {
    val manager = new RocksDBFileManager(source.storeCheckpointLocation().toString, dir, spark.hadoopConf,
      spark.conf.compressionCodec, s"binshift-changes-$source", spark.conf.stateStoreConf,
      spark.conf.fileChecksumEnabled, fileChecksumThreadPoolSize = Some(0))
    try {
      val changes = manager.getChangelogReader(ofVersion, checkpointId(ofVersion))
      try changes.foreach { case (kind, logged, value) =>
        // A record that has no value to put its checksum to has it before the key.
        val native =
          if (kind == RecordType.DELETE_RECORD && spark.conf.rowChecksumEnabled) {
            KeyValueChecksumEncoder.decodeKeyRowWithChecksum(logged)._1
          } else {
            logged
          }
        val family = mine(sourceFamily(native))
        val key = java.util.Arrays.copyOfRange(native, family.prefix.length, native.length)
        val bin = BinKeyCodec.of(family.family.name).binOf(key)
        if (steps.contains(bin)) consume(kind, family, bin, key, value)
      } finally changes.closeIfNeeded()
    } finally {
      manager.close()
    }
  }

  private def sourceFamily(native: Array[Byte]): NumberedFamily = {
    val number = Option.when(spark.useColumnFamilies)(NumberedFamily.numberIn(native))
    sourceFamilies.getOrElse(number, throw new DamagedShipment(
      s"the source made the column family of number ${number.getOrElse("(none)")} since"))
  }

  /** The family by that name of the store that gets the bins. */
  private def mine(theirs: NumberedFamily): NumberedFamily = {
    val family = families.getOrElse(theirs.family.name, throw new IllegalStateException(
      s"column family ${theirs.family.name} does not exist here yet"))
    if (spark.conf.rowChecksumEnabled && family.number != theirs.number) {
      throw new IllegalStateException(
        s"column family ${theirs.family.name} has another number here, which row checksums cover")
    }
    family
  }

  private def checkpointId(ofVersion: Long): Option[String] =
    Option.when(spark.enableStateStoreCheckpointIds)(routing.checkpointIds(ofVersion).of(source))

  private def endPart(part: Int, bins: Seq[Int]): Unit = {
    files.finishPart()
    ready(part) = bins
  }

  private def add(part: Int, theirs: NumberedFamily, key: Array[Byte], value: Array[Byte]): Unit = {
    val family = mine(theirs)
    files.add(part, family.family, family.nativeKey(key), value)
    bytes += key.length + value.length
    if (ShippingThreads.stagedBytes.get > conf.maxStagedBytes) {
      throw new IllegalStateException(s"more than ${conf.maxStagedBytes} bytes would be staged on this executor")
    }
  }

  /** A damaged shipment is read from the checkpoint instead; anything else ends the copy. */
  private def guarded(body: => Boolean): Boolean = try body catch {
    case e: DamagedShipment if state != Staged =>
      logWarning(s"$target: the shipment from $source cannot be used (${e.getMessage}); its bins are " +
        "copied from the checkpoint")
      state = Damaged
      true
    case NonFatal(e) =>
      logWarning(s"$target: the bins of $source cannot be staged; they are read from the checkpoint at their switch", e)
      state = Failed
      ready.clear()
      files.clear()
      closeStaging()
      false
  }

  private def readCheckpoint(): Boolean = {
    isShipped = false
    attempt = None
    files.clear()
    ready.clear()
    sourceFamilies.clear()
    val checkpoint = new CheckpointedBins(source, routing, spark)
    val parts = bins.filterNot(b => handedOver(b.step)).groupMap(_.step)(_.bin)
    checkpoint.foreachStoredRow(order.base, parts.toSeq.sortBy(_._1)) { theirs =>
      theirs.foreach(f => sourceFamilies(f.number) = f)
    }(add)
    files.finishPart()
    if (order.isOnDemand) ready ++= parts
    state = Fetched
    true
  }
}

private[binshift] object StagedCopy {
  private sealed trait State
  private case object Fetching extends State
  /** The shipment cannot be used; the checkpoint is read once the base is committed. */
  private case object Damaged extends State
  private case object Fetched extends State
  private case object Staged extends State
  private case object Failed extends State
}

/**
 * Files of one step's bins from one source.
 *
 * @param base    rows of the base version; no two of the files overlap
 * @param changes what changed since
 * @param rows    rows of both in all
 * @param version version of the source that the files are equal to
 */
private[binshift] final case class TakenCopy(
    base: Seq[File], changes: Option[File], rows: RowCounts, version: Long)
