package org.apache.spark.sql.execution.streaming.state.binshift.recovery

import java.io.File
import java.nio.channels.ClosedByInterruptException
import java.util.UUID

import scala.collection.mutable
import scala.util.control.NonFatal

import org.apache.spark.TaskKilledException
import org.apache.spark.internal.Logging
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.execution.streaming.state.binshift.{BinshiftException, Faults, Trace}
import org.apache.spark.sql.execution.streaming.state.binshift.keys.ColumnFamily
import org.apache.spark.sql.execution.streaming.state.binshift.routing.EpochRouting
import org.apache.spark.sql.execution.streaming.state.binshift.storage._
import org.apache.spark.util.Utils

/**
 * Rebuilds bins of a store as of a version from the checkpoint alone, wherever the bins have been.
 *
 * It carries out a [[RecoveryPlan]]. First it takes in the bases, each from a private database; an empty database may begin with the
 * files of the largest one. Then it applies the changes that
 * other partitions logged, version by version, while Spark replays the changelogs of this partition. Bins that are in the loaded
 * snapshot but have another base, or don't stay, are dropped first. Other threads fetch a few files ahead; only the caller's
 * thread changes the database. Keys are in their stored form, and no changelog is open.
 *
 * @param db               the database, which is changed
 * @param owner            the store that has `bins` at `version`
 * @param held             the version of the snapshot that `db` has loaded, if `db` is the owner's database and Spark replays its
 *                         changelogs
 * @param ownSnapshotsUpTo snapshots of `owner` after this version aren't read
 * @param begins           begins the database with the files of a base, if it is empty and can begin anew
 */
private[binshift] final class BinRecovery private (
    db: BinKeyedRocksDB, owner: StateStoreId, routing: EpochRouting, arguments: RocksDBArguments,
    bins: Set[Int], version: Long, held: Option[Long], ownSnapshotsUpTo: Long = Long.MaxValue,
    begins: Option[BinRecovery.Begin] = None) extends AutoCloseable
  with Logging {

  private val owners = routing.owners(version)
  private val rows = new BinRows(db, arguments.useColumnFamilies)
  private val scratch = new File(db.localRootDir.getParentFile, s"binshift-recover-${UUID.randomUUID()}")
  private val foreign = new ForeignRows(db)
  private val sources = mutable.Map.empty[Int, CommittedChanges]
  private var changes: Option[Ahead[(Long, HeldChanges)]] = None
  private var ahead: Option[(Long, HeldChanges)] = None
  private var own = Seq.empty[(Stretch, Set[Int])]
  private var reached = held.getOrElse(0L)
  /** The bins that have rows in the database. */
  private var present = Set.empty[Int]
  private var filesBytes = 0L

  /** True if anything came from another partition. */
  def hasAdopted: Boolean = sources.nonEmpty

  /** True if the changelog of `next` is the one to be replayed now. */
  def isBefore(next: Long): Boolean = reached == next - 1

  /** Applies the changes of other partitions up to version `to`. */
  def advance(to: Long): Unit = {
    if (changes.isEmpty) begin()
    while (nextChanges.exists(_._1 <= to)) {
      nextChanges.foreach { case (_, held) =>
        held.foreach(foreign(_))
        held.close()
      }
      ahead = None
    }
    reached = to
  }

  /**
   * True if Spark should apply a record of the changelog that is being replayed: the record's bin is wanted, and its base doesn't
   * contain the record yet.
   */
  def keeps(kind: RecordType.Value, logged: Array[Byte]): Boolean = {
    val native = RowForm.keyOf(kind, logged, arguments.conf)
    byNumber.get(CommittedChanges.numberIn(native, arguments.useColumnFamilies)).forall(family => kept(family.binOf(native)))
  }

  override def close(): Unit = {
    changes.foreach(_.close())
    sources.values.foreach(_.close())
    Utils.deleteRecursively(scratch)
  }

  private lazy val byNumber = ColumnFamily.numbered(db, arguments.useColumnFamilies).map(f => f.number -> f).toMap
  private var keptAt = -1L
  private var keptBins = Set.empty[Int]

  private def kept(bin: Int): Boolean = {
    if (keptAt != reached) {
      keptAt = reached
      keptBins = own.filter { case (s, _) => s.first <= reached && reached <= s.last }.flatMap(_._2).toSet
    }
    keptBins(bin)
  }

  private def begin(): Unit = {
    Utils.createDirectory(scratch)
    present = held.fold(Set.empty[Int])(at => ownedAt(Snapshot(owner.partitionId, at)))
    val plan = takeBases(RecoveryPlan.of(bins.toSeq.sorted, owner.partitionId, version, owners, newest))
    // Dropped only now, because a base that can't be read may be replaced by the snapshot that is loaded.
    drop(present -- plan.bases.values.flatten)
    if (Trace.isOn && ownSnapshotsUpTo == Long.MaxValue) trace(plan)
    val others = plan.foreign(owner.partitionId, held).toSeq
    own = (plan.stretches -- others.map(_._1)).toSeq.map { case (stretch, of) => stretch -> of.toSet }
    // Each changelog is read once, even if it belongs to several stretches.
    val reads = for ((stretch, of) <- others; v <- stretch.first to stretch.last) yield (stretch.partition, v, stretch.last, of)
    val jobs = reads.groupBy(r => (r._1, r._2)).toSeq.sortBy { case ((partition, v), _) => (v, partition) }.map {
      case ((partition, v), parts) =>
        val wanted = parts.flatMap(_._4).toSet
        () => (v, changesOf(source(partition), v, parts.map(_._3).min, wanted))
    }
    others.foreach { case (stretch, _) => source(stretch.partition) }
    changes = Some(new Ahead(jobs.iterator, (_: (Long, HeldChanges))._2.close()))
  }

  private def changesOf(of: CommittedChanges, version: Long, last: Long, bins: Set[Int]): HeldChanges = {
    Faults.at("checkpoint.changes", of.store.partitionId)
    val file = new File(scratch, s"changes-${of.store.partitionId}-$version")
    val held = of.reading(version, last, of.familiesAt(version, last)) { changes =>
      HeldChanges.of(changes.filter(change => bins(change.bin)), file, BinRecovery.MaxHeldBytes)
    }
    if (held.isInFile) Faults.at("recovery.file", of.store.partitionId)
    held
  }

  private def trace(plan: RecoveryPlan): Unit = Trace("recovery", owner, "version" -> version, "held" -> held,
    "bases" -> plan.bases.toSeq.map { case (s, of) => Seq[Any](s.partition, s.version, Trace.ranges(of)) },
    "stretches" -> plan.stretches.toSeq.map { case (s, of) => Seq[Any](s.partition, s.first, s.last, Trace.ranges(of)) })

  /** The bins that a partition owned in its snapshot. */
  private def ownedAt(of: Snapshot): Set[Int] =
    owners.find(of.version).fold(Set.empty[Int])(owners.table(_).binsOf.lift(of.partition).toSeq.flatten.toSet)

  private def drop(gone: Set[Int]): Unit = if (gone.nonEmpty) {
    present --= gone
    val sorted = gone.toSeq.sorted
    rows.remove(sorted, !present(_))
  }

  /** Takes in all bases, and returns the plan with those that were used. If a base can't be read, an older one replaces it. */
  private def takeBases(plan: RecoveryPlan): RecoveryPlan = {
    // The largest one first, because a database that is empty begins with its files.
    val bases = plan.bases.toSeq.sortBy { case (s, of) => (if (begins.isEmpty) 0 else -of.size, s.partition, s.version) }
      .filterNot { case (s, _) => s.partition == owner.partitionId && held.contains(s.version) }
    val opened = new Ahead[BinKeyedRocksDB](bases.iterator.map { case (base, of) =>
        val files = source(base.partition)
        () =>
          new CheckpointedBins(files.store, routing, arguments).openAt(base.version, files.id(base.version, base.version),
            of.toSet)
      }, _.close())
    val failed =
      try bases.flatMap { case (base, of) =>
          // While the database is changed, a failure isn't the base's.
          var isChanging = false
          try {
            val from = opened.next()
            try {
              val files = filesOf(base, from, of)
              isChanging = files.isDefined
              if (files.exists(isBegunWith(_, of))) present ++= of
              else {
                isChanging = false
                foreign.takeIn(from, of, newDir()) {
                  isChanging = true
                  drop(present & of.toSet)
                  present ++= of
                }
              }
            } finally from.close()
            Nil
          } catch {
            case NonFatal(e) if !isChanging && !BinRecovery.isKill(e) =>
              logWarning(s"the snapshot of version ${base.version} of ${source(base.partition).store} cannot be read; an older " +
                  "one is taken", e)
              source(base.partition).exclude(base.version)
              of.map(_ -> e)
          }
        }
      finally opened.close()
    if (failed.isEmpty) plan
    else {
      val (again, reasons) = failed.unzip
      val older =
        try RecoveryPlan.of(again, owner.partitionId, version, owners, newest)
        catch {
          case none: BinshiftException =>
            // There is no older one, so nobody would see why these weren't taken.
            reasons.distinct.foreach(none.addSuppressed)
            throw none
        }
      plan.without(again.toSet) ++ takeBases(older)
    }
  }

  /**
   * The files of a base, if the database can begin with them. `None` if they are damaged as well, because the wanted rows may be
   * sound.
   */
  private def filesOf(base: Snapshot, from: BinKeyedRocksDB, of: Seq[Int]): Option[WholeFiles] = {
    // Foreign rows stay in the files for some time, so they shouldn't be many more than the wanted ones.
    def isMuch = of.size * BinRecovery.LeastShare >= ownedAt(base).size
    try Option.when(begins.isDefined && present.isEmpty && isMuch) {
        val files = new File(newDir(), "linked")
        // Nobody reads the rows before the query does, and then no older snapshot would be taken.
        RocksDBFields.native(from).verifyChecksum()
        WholeFiles.link(RocksDBFields.native(from), files)
        from.countIfUnknown(of): Unit
        new WholeFiles(files, ColumnFamily.numbered(from, arguments.useColumnFamilies), from.rowsByBin.of(of))
      }
    catch {
      case NonFatal(e) if !BinRecovery.isKill(e) =>
        logWarning(s"$owner cannot begin with the files of version ${base.version}; their rows are read", e)
        None
    }
  }

  /** Begins with files. If it returns false, nothing has changed. */
  private def isBegunWith(files: WholeFiles, of: Seq[Int]): Boolean = {
    val bytes = files.bytes
    val isBegun = begins.exists(_(files, of))
    foreign.forget()
    if (isBegun) filesBytes += bytes
    isBegun
  }

  /** Not one of Spark's temporary directories, because Spark remembers the names of those for as long as the executor lives. */
  private def newDir(): File = {
    val dir = new File(scratch, s"base-${UUID.randomUUID()}")
    Utils.createDirectory(dir)
    dir
  }

  private def newest(partition: Int, at: Long): Option[Long] =
    if (partition != owner.partitionId) source(partition).newestSnapshot(at)
    else if (held.exists(_ <= at)) held
    else source(partition).newestSnapshot(math.min(at, ownSnapshotsUpTo))

  private def source(partition: Int): CommittedChanges =
    sources.getOrElseUpdate(partition, new CommittedChanges(owner.copy(partitionId = partition), routing, arguments))

  private def nextChanges: Option[(Long, HeldChanges)] = {
    if (ahead.isEmpty) ahead = changes.filter(_.hasNext).map(_.next())
    ahead
  }
}

private[binshift] object BinRecovery {
  /** How many bytes of a changelog that was read ahead stay in memory. [[Ahead]] bounds how many of them a store holds. */
  private val MaxHeldBytes = 512L << 10

  /** A database begins with the files of a base if at least one in so many of its bins are wanted. */
  private val LeastShare = 4

  /**
   * Begins a database, which is empty, with files, of which the rows of some bins stay. Returns false if that isn't possible; then the
   * database is empty again.
   */
  type Begin = (WholeFiles, Seq[Int]) => Boolean

  private def isKill(e: Throwable): Boolean = e match {
    case _: TaskKilledException | _: ClosedByInterruptException => true
    case _ => false
  }

  /** For a store that has loaded its own snapshot `held`, and is about to replay its changelogs. */
  def ofReplay(
      db: BinKeyedRocksDB, store: StateStoreId, routing: EpochRouting, arguments: RocksDBArguments,
      bins: Set[Int], version: Long, held: Long): BinRecovery =
    new BinRecovery(db, store, routing, arguments, bins, version, Some(held))

  /** Adds `bins` to a store that has none of them, with the rows that `source` had at `version`. */
  def adopt(
      db: BinKeyedRocksDB, source: StateStoreId, routing: EpochRouting, arguments: RocksDBArguments,
      bins: Seq[Int], version: Long, ownSnapshotsUpTo: Long = Long.MaxValue, begins: Option[Begin] = None): SwitchStats = {
    val before = RocksDBFields.rows(db)
    val recovery = new BinRecovery(db, source, routing, arguments, bins.toSet, version, None, ownSnapshotsUpTo, begins)
    try recovery.advance(version)
    finally recovery.close()
    val came = RocksDBFields.rows(db) - before
    SwitchStats(binsFromCheckpoint = bins.size, rowsAdopted = came.rows + came.internal,
      bytesAdopted = recovery.foreign.bytes + recovery.filesBytes, isSplit = recovery.filesBytes > 0)
  }
}
