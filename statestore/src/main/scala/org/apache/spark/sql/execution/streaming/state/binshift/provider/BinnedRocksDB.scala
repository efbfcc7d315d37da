package org.apache.spark.sql.execution.streaming.state.binshift.provider

import org.apache.hadoop.fs.Path

import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.execution.streaming.state.binshift.{BinshiftException, Faults, LogLine, OrWarn, Trace}
import org.apache.spark.sql.execution.streaming.state.binshift.checkpoint.VersionFile
import org.apache.spark.sql.execution.streaming.state.binshift.conversion.PartitionTakeover
import org.apache.spark.sql.execution.streaming.state.binshift.migration.{BinAudits, BinMover, PendingBins}
import org.apache.spark.sql.execution.streaming.state.binshift.recovery.{ReplayedRows, ReplayingRocksDB, RetainedVersions}
import org.apache.spark.sql.execution.streaming.state.binshift.routing.{BinSwitch, EpochRouting}
import org.apache.spark.sql.execution.streaming.state.binshift.shipping.{BackgroundConf, ExecutorLoad, PartitionShipping, ShippingStore, StandbyStores}
import org.apache.spark.sql.execution.streaming.state.binshift.statistics.{BinCounts, KeySample, RowsByBin}
import org.apache.spark.sql.execution.streaming.state.binshift.storage._
import org.apache.spark.util.Utils

/**
 * A binned database whose content follows the routing table. When a task loads a version at which the table changes, the database
 * adopts the bins that arrive and releases those that leave, before the first row is processed.
 *
 * A switch writes nothing to the checkpoint, not even a changelog, because the routing log already tells of it. A recovery that
 * replays the next version's changelog makes the switch again, from the checkpoints of the sources (`BinRecovery`). The next
 * regular snapshot then contains the adopted bins.
 *
 * Relies on Spark: `RocksDB` replays changelogs inside `load` and `loadFromSnapshot`. A `load` of the version that is loaded
 * already keeps the content, and opens the changelog if it is for writing. After `loadEmpty`, or after a column family was
 * created, the commit uploads a whole snapshot. After `rollback`, the next load starts from the checkpoint.
 *
 * @param routing  routing of the query's run, or of the checkpoint for a store that only reads
 * @param isRouted whether the store is one of a running, routed query
 * @param takeOver for a checkpoint that Spark's own provider started; its epochs before the takeover stay in that provider's form
 * @param isUnloadedOnCommit whether Spark closes the store as soon as it has committed
 */
private[binshift] final class BinnedRocksDB(
    storeId: StateStoreId,
    routing: EpochRouting,
    isRouted: Boolean,
    background: BackgroundConf,
    takeOver: Option[PartitionTakeover],
    arguments: RocksDBArguments,
    isUnloadedOnCommit: Boolean)
  extends ReplayingRocksDB(storeId, routing, arguments, wanted = None) with ShippingStore with OrWarn {
  import StoreRole._

  /** The bins and rows that the last load adopted and released. */
  def lastSwitch: SwitchStats = switchStats

  /** The number of bins that the next step waits for: those that have no copy yet, and those that haven't arrived on demand. */
  def binsAwaited: Int = shipping.awaited + pendingBins.missing

  /** The number of the next step's bins for which there will be no copy. */
  def binsGivenUp: Int = shipping.givenUp

  def bytesCopied: Long = shipping.bytesCopied

  /** The files from which the loaded version was loaded, if the store came to this executor with that version. */
  def loadedFiles: LoadedFiles =
    loaded.filter { case (v, _) => v == loadedVersion || v == loadedVersion - 1 }.fold(LoadedFiles.None)(_._2)

  /** The bins that come on demand. */
  def pendingBins: PendingBins = mover.pendingBins

  /** Counts keys while a client asks for it; otherwise null. Read by each operation. */
  def sample: KeySample = statistics.sample

  override def requireAllBins(): Unit = pendingBins.requireAll()

  override def rowsOfBins: RowsByBin = {
    replayed.settle()
    rowsByBin
  }

  override protected def enterRow(stored: Array[Byte], family: String): Unit =
    if (pendingBins.missing > 0) pendingBins.requireRow(bin, family, stored)

  /** Adds to the statistics of the loaded version's switch. */
  private def count(stats: SwitchStats): Unit = {
    switchStats = switchStats + stats
    if (stats.binsAdopted > 0) snapshotTurn.request()
  }

  /** The checkpoint id that the driver has for the loaded version, if Spark's `RocksDB` doesn't know one. */
  def unknownBaseId: Option[String] = baseId

  private var switchStats = SwitchStats.None
  /** Repeats the load of the version that is being switched. */
  private var reload: () => Unit = () => throw new IllegalStateException("nothing is loaded that could be loaded again")
  private var baseId: Option[String] = None
  private var loaded = Option.empty[(Long, LoadedFiles)]

  private val takenOverAt = takeOver.map(_.epoch)
  /** What the store is at the version that was last loaded. */
  @volatile private var role: StoreRole = Unloaded
  /** True once the epoch of a takeover is over, so that it won't run again from the old state. Maintenance reads it. */
  @volatile private var isTakenOver = takenOverAt.isEmpty

  /** True if the last commit put off the check whether files have piled up. */
  private var isMergedLater = false

  /** True for a store that only reads, if the query didn't have its partition at the loaded version. Such a store is empty. */
  def isRetired: Boolean = role == Retired

  private val statistics = new EpochStatistics(storeId, routing)
  private val trace = new StoreTrace(storeId, routing)

  /** The loaded version, if its switch has been applied and nothing was committed since. */
  private var switchedAt: Option[Long] = None

  private val replayed = new ReplayedRows(this, () => ExecutorLoad.hasFreeCore)

  private val retained =
    RetainedVersions.of(storeId, routing, arguments.conf, arguments.hadoopConf, arguments.enableStateStoreCheckpointIds)
  private val shipping = new PartitionShipping(storeId, this, routing, arguments, background)
  private val mover =
    new BinMover(this, storeId, routing, shipping, background, arguments, count, beginWith, () => beginAnew())

  private val audits = new BinAudits(this, storeId, routing, arguments, background)

  private val snapshotTurn = new SnapshotTurn(this, storeId, isShared = background.areAllCoresBusy)
  /**
   * True if files of the store are missing in the checkpoint, so that the next commit should make a snapshot. Set by tasks and by
   * maintenance.
   */
  @volatile private var isSnapshotWanted = false
  /** The version of the last snapshot that replaced missing files. Maintenance reads it. */
  @volatile private var wantedSnapshot = 0L
  /** The last file that was found to be missing. Used by maintenance. */
  private var lostFile = Option.empty[String]
  private val maintenance = new Object
  /**
   * Guarded by `maintenance`. Once the store is closed, the partition's next owner uploads what still waits, and deletes what may
   * be deleted.
   */
  private var isClosed = false

  /** False if commits compact, because such a commit waits for the compaction. */
  private val isPaced = isRouted && !conf.compactOnCommit

  if (isRouted) binnedFiles.use(
    StandbyStores.filesOf(arguments.dfsRootDir), routing.isDisowned(_, arguments.enableStateStoreCheckpointIds, _),
    routing.savepoints)

  if (isPaced) CompactionPace.limit(rocksDbOptions, background.compactionPace)

  override def loadAt(
      version: Long,
      stateStoreCkptId: Option[String],
      readOnly: Boolean,
      loadEmpty: Boolean): RocksDB = {
    shipping.awaitLinks()
    mover.released.hold()
    role = StoreRole.at(version, takenOverAt, isRouted)
    keepPlain(role == Stock)
    if (takenOverAt.exists(version > _)) isTakenOver = true
    if (isRouted) {
      retained.committed(version, stateStoreCkptId)
      if (routing.wantsSnapshot(version, partitionId)) isSnapshotWanted = true
    }
    role match {
      case Stock =>
        switchStats = SwitchStats.None
        baseId = None
        switchedAt = None
        table = routing.at(version).now
        loadStored(version, stateStoreCkptId, readOnly, loadEmpty)
      case Takeover | Routed => loadRouted(version, stateStoreCkptId, readOnly, loadEmpty)
      case Unloaded | Read | Retired =>
        if (!readOnly && !VersionedRocksDB.ReadersOpenToWrite) throw notRouted()
        routing.requireLogged(version)
        if (ReadPartitions.MayBeRetired && isRetiredAt(version)) {
          role = Retired
          loadStored(version, None, readOnly, loadEmpty = true)
        } else loadStored(version, stateStoreCkptId, readOnly, loadEmpty)
    }
    mover.released.begin()
    this
  }

  /** True if the query had fewer partitions when it committed `version`. */
  private def isRetiredAt(version: Long): Boolean = routing.partitionsOf(version).exists(_ <= partitionId)

  private def loadRouted(version: Long, ckptId: Option[String], readOnly: Boolean, loadEmpty: Boolean): Unit = {
    val tables = routing.at(version)
    val isTakeover = role == Takeover
    val switch =
      if (isTakeover) Some(BinSwitch.Fresh)
      else tables.before.map(BinSwitch.between(_, tables.now, partitionId)).filterNot(_.isEmpty)
    table = tables.now
    val isAnew = beginCounting(version)
    switch.orElse(voidSwitch(version)) match {
      case Some(s) =>
        baseId = if (s.isNew) ckptId else None
        loadAndSwitch(version, ckptId, readOnly, loadEmpty, s)
      case None =>
        baseId = None
        if (isAnew) switchStats = SwitchStats.None
        switchedAt = None
        loadStored(version, ckptId, readOnly, loadEmpty)
        shipping.onLoad(version)
        pendingBins.pull()
        auditIfWhole(version)
    }
    if (Trace.isOn) trace.loaded(version, ckptId, readOnly, table, isTakeover)
  }

  /**
   * Makes a partition that owns no bins start like a new one when it comes to this executor. It has no state, but its files are
   * still full of bins that it released.
   */
  private def voidSwitch(version: Long): Option[BinSwitch] = Option.when(
    binsOwned == 0 && version > 0 && (loadedVersion != version || isSwitched(version)))(BinSwitch.Fresh)

  /** Loads a version. Runs with keys in their stored form, because changelogs have them in that form. */
  private def loadStored(version: Long, ckptId: Option[String], readOnly: Boolean, loadEmpty: Boolean): Unit = {
    val native = RocksDBFields.native(this)
    if (loadEmpty || loadedVersion != version || !replayed.has(version, ckptId)) audits.release()
    replayed.beginLoad(version, ckptId, isLoaded = loadedVersion == version && !loadEmpty)
    replayingUpTo(version)(binnedFiles.loading {
      try loadBySpark(version, ckptId, readOnly, loadEmpty)
      catch {
        case e: Throwable =>
          // Closed before the load is tried again, because RocksDB can't close a database that has a snapshot.
          replayed.close()
          throw e
      }
    })
    val files = binnedFiles.takeLoadedFiles()
    if (!files.isEmpty) loaded = Some(version -> files)
    // The native database is another one, so everything was loaded from the checkpoint, which another attempt may have written.
    if (RocksDBFields.native(this) ne native) {
      if (Trace.isOn && role.followsTable) trace.opened(version, ckptId, loadEmpty, binnedFiles.loadedSnapshot)
      mover.forget()
      audits.forget()
      if (role.followsTable && isCountedNow()) {
        replayed.close()
        // So that the next load needn't count again.
        snapshotTurn.request()
      }
      if (replayed.isReady) replayed.settle()
    }
  }

  /** Returns whether rows had to be counted. If that fails, the next load begins anew, because it would not count otherwise. */
  private def isCountedNow(): Boolean =
    try countIfUnknown()
    catch {
      case e: Throwable =>
        rollback()
        throw e
    }

  /**
   * Loads the version for reading first, so that no changelog is open while bins come and go. A version may be loaded more than
   * once: twice by an operator that reads before it writes, and more often by a `foreachBatch` with several actions. From the
   * second load on, the switch has been made already.
   */
  private def loadAndSwitch(
      version: Long, ckptId: Option[String], readOnly: Boolean, loadEmpty: Boolean, switch: BinSwitch): Unit = {
    if (!isSwitched(version)) {
      switchedAt = None
      reload = () =>
        // The store begins empty, whatever files its directory has.
        if (switch.isNew) loadStored(version, None, readOnly = false, loadEmpty = true)
        else loadStored(version, ckptId, readOnly = true, loadEmpty)
      reload()
      shipping.onLoad(version)
      auditIfWhole(version)
      applySwitch(version, switch, ckptId)
    }
    // Spark wipes an empty store whenever it is loaded, and opens no changelog for it.
    if (!readOnly && !switch.isNew) loadStored(version, ckptId, readOnly, loadEmpty)
  }

  private def beginWith(files: WholeFiles): Unit = binnedFiles.beginningWith(files)(beginAnew())

  /**
   * Loads the same version from scratch. Relies on Spark: a load of a version other than the loaded one opens another native
   * database.
   */
  private def beginAnew(): Unit = {
    val (version, native) = (loadedVersion, RocksDBFields.native(this))
    loadedVersion = -1
    reload()
    require(loadedVersion == version && (RocksDBFields.native(this) ne native), s"version $version was not loaded anew")
    // The switch continues, and needs the number of rows.
    replayed.settle()
  }

  private def isSwitched(version: Long): Boolean = switchedAt.contains(version) && loadedVersion == version

  private def applySwitch(version: Long, switch: BinSwitch, ckptId: Option[String]): Unit = {
    switchStats = SwitchStats.None
    try {
      replayed.settle()
      count(
        if (role == Takeover) takeOver.get.fill(this, ckptId, arguments)
        else {
          val moved = inStoredForm(mover.apply(version, switch))
          audits.switched(version, switch.arriving)
          moved
        })
      auditIfWhole(version)
    } catch {
      case e: Throwable =>
        rollback()
        throw BinshiftException("SWITCH_FAILED", "partition" -> partitionId, "epoch" -> version).migration(
          s"partition $partitionId of operator ${storeId.operatorId} could not take over its bins at " +
            s"epoch $version (${e.getMessage}); the batch is retried from the last committed state", e)
    }
    switchedAt = Some(version)
    logInfo(LogLine("switch", "epoch" -> version, "operator" -> storeId.operatorId, "partition" -> partitionId,
        "store" -> storeId.storeName, "prepared" -> switchStats.binsPrepared, "shipped" -> switchStats.binsShipped,
        "from_checkpoint" -> switchStats.binsFromCheckpoint, "released" -> switchStats.binsReleased,
        "split" -> switchStats.isSplit,
        "ms" -> switchStats.adoptMs))
  }

  /** Begins the audit that is due, if all bins are here. Called before anything is written to the loaded version. */
  private def auditIfWhole(version: Long): Unit = if (pendingBins.missing == 0) audits.whole(version)

  override def loadFromSnapshot(
      snapshotVersion: Long,
      endVersion: Long,
      snapshotVersionStateStoreCkptId: Option[String],
      endVersionStateStoreCkptId: Option[String]): RocksDB = {
    takenOverAt.filter(epoch => snapshotVersion <= epoch && endVersion > epoch).foreach { epoch =>
      throw BinshiftException("BEFORE_TAKEOVER", "epoch" -> epoch).configuration(
        s"the state cannot be rebuilt across epoch $epoch, at which it was taken over from Spark's own provider; " +
          s"start from the snapshot of batch $epoch or a later one")
    }
    if (!isRouted && !StoreRole.isStock(endVersion, takenOverAt)) routing.requireLogged(endVersion)
    replayed.close()
    replayingUpTo(endVersion)(super.loadFromSnapshot(
        snapshotVersion, endVersion, snapshotVersionStateStoreCkptId, endVersionStateStoreCkptId))
  }

  /** Versions in the form of Spark's provider have no switches. */
  override def replayOf(version: Long): Option[BinnedFileManager.Replay] =
    if (StoreRole.isStock(version - 1, takenOverAt)) None
    else super.replayOf(version) match {
      case Some(switched) =>
        // A recovery of bins counts rows itself, and looks some of them up.
        replayed.settle()
        Some(switched)
      case None if !isRouted => None
      // Spark verifies each record. A store that is closed when its task ends can't count anything later.
      case None if RowForm.hasChecksums(conf) || isUnloadedOnCommit && conf.trackTotalNumberOfRows =>
        Some(BinnedFileManager.BySpark)
      case None =>
        Some(replayed.next())
    }

  override def keptFrom(retain: Int): Option[OldVersions.Decision] =
    // The epoch of the takeover may run again, and would need the same files.
    if (!isTakenOver) None
    else {
      val last = retained.newestCommitted
      val listed = VersionFile.list(storeId, arguments.hadoopConf)
      val dir = storeId.storeCheckpointLocation()
      // As if these versions were still retained.
      val asWell = (shipping.oldestNeeded ++ binnedFiles.newestWhole).minOption
      orWarn(s"could not find out which files of $storeId recoveries need; all of its files are kept for now",
        Option.empty[OldVersions.Decision]) {
        routing.savepoints.sparing { isSpared =>
          for {
            from <- retained.keptFrom(listed, retain, asWell, f => isSpared(new Path(dir, f.name)))
            version <- last if !isIncomplete(listed, version)
          } yield from
        }.map { case (from, isSpared) => OldVersions.Decision(from, listed, isSpared) }
      }
    }

  /**
   * True if the checkpoint lacks a file of this store that a recovery of `version` would read. In that case, the next commit
   * makes a snapshot while the state is still here, unless one was made since that version.
   */
  private def isIncomplete(listed: Seq[VersionFile], version: Long): Boolean = {
    val lost = retained.lacking(listed, version)
    for (file <- lost if wantedSnapshot <= version) {
      isSnapshotWanted = true
      if (!lostFile.contains(file)) logError(BinshiftException("STATE_NOT_RECOVERABLE", "partition" -> partitionId).migration(
          s"$file of $storeId is missing, and a recovery of version $version would need it; the next commit makes a snapshot that " +
            "replaces it, and until then nothing of the store is deleted; find out what deletes files of the checkpoint, and run " +
            "`binshift fsck`").getMessage)
      lostFile = lost
    }
    lost.isDefined
  }

  /**
   * Commits the version. After bins were adopted, a snapshot is made soon and uploaded at once: from then on, a recovery of this
   * store doesn't need the checkpoints of the sources.
   */
  override def commitVersion(forceSnapshot: Boolean): (Long, StateStoreCheckpointInfo) = {
    if (!isRouted) throw notRouted()
    val isBinned = role.followsTable
    if (isSnapshotWanted && isBinned) {
      wantedSnapshot = loadedVersion + 1
      isSnapshotWanted = false
      snapshotTurn.request()
      RocksDBFields.forgetUploaded(this)
      RocksDBFields.forceSnapshot(this)
    }
    // A query whose runs have a single epoch each would otherwise never make a snapshot.
    def mustCount = forceSnapshot || RocksDBFields.mustSnapshot(this) || snapshotTurn.isLate(loadedVersion + 1)
    if (replayed.isReady || mustCount) replayed.settle()
    if (mustCount) mover.released.sweep()
    // A snapshot must contain all of the state, so we wait for the bins that haven't arrived.
    if (forceSnapshot || RocksDBFields.mustSnapshot(this)) pendingBins.requireAll()
    val isUploaded = RocksDBFields.isUploadedWhole(this)
    val result @ (version, info) =
      snapshotTurn.commit(loadedVersion + 1, isWhole && mover.released.isEmpty, () => PromptUploads.submit(this))(
        if (isBinned && conf.trackTotalNumberOfRows) binnedFiles.committing(rowsByBin)(commitBySpark(forceSnapshot))
        else commitBySpark(forceSnapshot))
    if (Trace.isOn && isBinned)
      trace.committed(version, info.stateStoreCkptId, hasChangelog = conf.enableChangelogCheckpointing && !isUploaded)
    if (isUploaded) RocksDBFields.forgetForced(this)
    replayed.committed(version, info.stateStoreCkptId)
    binnedFiles.proven()
    // Adopted files aren't merged in the epoch of their step, because other tasks may still run in it. But if steps follow one
    // another, merging isn't put off a second time.
    isMergedLater = switchedAt.contains(version - 1) && !isMergedLater
    if (isPaced && !isMergedLater) CompactionPace.committed(this, RocksDBFields.native(this), rocksDbOptions)
    if (isBinned) {
      shipping.onCommit(version, info.stateStoreCkptId)
      if (shipping.isStepNext) {
        // What is written after the flush would have to be flushed again.
        mover.released.hold()
        Faults.at("switch.flush", partitionId)
        // The flush only saves time, so its failure doesn't matter.
        Utils.tryLogNonFatalError(RocksDBFields.beginFlush(this))
      }
      val isSized = conf.trackTotalNumberOfRows
      statistics.report(version - 1, counts, isSized, Option.when(isSized && isWhole)(RocksDBFields.rows(this)), shipping.awaited)
    }
    Faults.at("store.committed", partitionId)
    result
  }

  /** Prepares the counters for `version`. Returns true if they start from zero. */
  private def beginCounting(version: Long): Boolean = {
    val isAnew = statistics.begin(version)
    if (isAnew) counts = new BinCounts(table, partitionId)
    isAnew
  }

  /** True if all bins have arrived and all rows are counted. Snapshots wait for that. */
  private def isWhole: Boolean = pendingBins.missing == 0 && replayed.isCounted

  override protected def replayHasAdopted(): Unit = snapshotTurn.request()

  override def removeColFamilyIfExists(cfName: String): Boolean = {
    mover.released.sweep()
    val isRemoved = super.removeColFamilyIfExists(cfName)
    if (isRemoved) {
      // Spark doesn't say of which bins the rows were.
      replayed.close()
      countAll()
    }
    isRemoved
  }

  /**
   * Runs a part of maintenance, for Spark's thread or for [[PromptUploads]]. They exclude each other, because uploads share what
   * they know of the files in the checkpoint.
   */
  override protected def maintaining(work: => Unit): Unit = maintenance.synchronized(if (!isClosed) work)

  override def rollback(): Unit = {
    switchedAt = None
    statistics.forget()
    replayed.close()
    binnedFiles.rolledBack()
    if (Trace.isOn && isRouted) Trace("rolled back", storeId, "run" -> routing.run)
    super.rollback()
  }

  override def close(): Unit = {
    // If closing one of these fails, the database still has to be closed, because nobody else would free its memory.
    Utils.tryLogNonFatalError(shipping.close())
    mover.close()
    audits.release()
    CompactionPace.closed(this)
    Utils.tryLogNonFatalError(replayed.close())
    // An upload that goes on while the local files are deleted would list the remaining ones as all files of the snapshot.
    // Waiting for it here can't deadlock: no upload waits for a lock of a thread that closes stores.
    maintenance.synchronized {
      isClosed = true
      super.close()
    }
  }

  private def notRouted(): BinshiftException = BinshiftException("SESSION_WITHOUT_BINSHIFT").configuration(
    s"$storeId was opened for writing by a session in which binshift's extension is not active; " +
      "put the binshift jar into spark.jars before the session is created, for example with " +
      "binshift.configure(builder)")
}
