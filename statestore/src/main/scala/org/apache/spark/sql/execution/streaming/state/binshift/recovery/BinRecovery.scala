package org.apache.spark.sql.execution.streaming.state.binshift.recovery

import java.io.File
import java.util.UUID

import scala.collection.mutable
import scala.util.control.NonFatal

import org.apache.spark.internal.Logging
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.execution.streaming.state.binshift.{Faults, Trace}
import org.apache.spark.sql.execution.streaming.state.binshift.keys.{BinKeyCodec, ColumnFamily, NumberedFamily}
import org.apache.spark.sql.execution.streaming.state.binshift.routing.EpochRouting
import org.apache.spark.sql.execution.streaming.state.binshift.statistics.{RowCounts, RowsByBin}
import org.apache.spark.sql.execution.streaming.state.binshift.storage._
import org.apache.spark.util.Utils

/**
 * Rebuilds bins of a store as of a version from the checkpoint alone, wherever the bins have been.
 *
 * It carries out a [[RecoveryPlan]]. First it takes in the bases, each from a private database. Then it applies the changes that
 * other partitions logged, version by version, while Spark replays the changelogs of this partition. Bins that are in the loaded
 * snapshot but have another base, or don't stay, are dropped first. Other threads fetch a few files ahead; only the caller's
 * thread changes the database. Keys are in their stored form, and no changelog is open.
 *
 * @param db               the database, which is changed
 * @param owner            the store that has `bins` at `version`
 * @param held             the version of the snapshot that `db` has loaded, if `db` is the owner's database and Spark replays its
 *                         changelogs
 * @param ownSnapshotsUpTo snapshots of `owner` after this version aren't read
 */
private[binshift] final class BinRecovery private (
    db: BinKeyedRocksDB, owner: StateStoreId, routing: EpochRouting, arguments: RocksDBArguments,
    bins: Set[Int], version: Long, held: Option[Long], ownSnapshotsUpTo: Long = Long.MaxValue) extends AutoCloseable
  with Logging {

  private val owners = routing.owners(version)
  private val rows = new BinRows(db, arguments.useColumnFamilies)
  private val scratch = new File(db.localRootDir.getParentFile, s"binshift-recover-${UUID.randomUUID()}")
  private val sources = mutable.Map.empty[Int, SourceFiles]
  private val families = mutable.Map.empty[String, NumberedFamily]
  private var changes: Option[Ahead[(Long, HeldChanges)]] = None
  private var ahead: Option[(Long, HeldChanges)] = None
  private var own = Seq.empty[(Stretch, Set[Int])]
  private var reached = held.getOrElse(0L)
  /** The bins that have rows in the database. */
  private var present = Set.empty[Int]
  private var bytes = 0L

  /** True if anything came from another partition. */
  def hasAdopted: Boolean = sources.nonEmpty

  /** True if the changelog of `next` is the one to be replayed now. */
  def isBefore(next: Long): Boolean = reached == next - 1

  /** Applies the changes of other partitions up to version `to`. */
  def advance(to: Long): Unit = {
    if (changes.isEmpty) begin()
    while (nextChanges.exists(_._1 <= to)) {
      nextChanges.foreach { case (_, held) =>
        held.foreach(applyChange)
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
    SourceFiles.familyOf(native, byNumber, arguments.useColumnFamilies).forall { family =>
      val codec = BinKeyCodec.of(family.family.name)
      kept(codec.binOf(family.keyIn(native)))
    }
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
    present = held.fold(Set.empty[Int])(ownedAt)
    val plan = takeBases(RecoveryPlan.of(bins.toSeq.sorted, owner.partitionId, version, owners, newest))
    // Dropped only now, because a base that can't be read may be replaced by the snapshot that is loaded.
    drop(present -- plan.bases.values.flatten)
    val stretches = plan.stretches
    if (Trace.isOn && ownSnapshotsUpTo == Long.MaxValue) trace(plan)
    val (mine, others) = stretches.toSeq.partition { case (s, _) =>
      s.partition == owner.partitionId && held.exists(s.first > _)
    }
    own = mine.map { case (stretch, of) => stretch -> of.toSet }
    // Each changelog is read once, even if it belongs to several stretches.
    val reads = for ((stretch, of) <- others; v <- stretch.first to stretch.last) yield (stretch.partition, v, stretch.last, of)
    val jobs = reads.groupBy(r => (r._1, r._2)).toSeq.sortBy { case ((partition, v), _) => (v, partition) }.map {
      case ((partition, v), parts) =>
        val wanted = parts.flatMap(_._4).toSet
        () => (v, source(partition).changes(v, parts.map(_._3).min, wanted))
    }
    others.foreach { case (stretch, _) => source(stretch.partition) }
    changes = Some(new Ahead(jobs.iterator, (_: (Long, HeldChanges))._2.close()))
  }

  private def trace(plan: RecoveryPlan): Unit = Trace("recovery", owner, "version" -> version, "held" -> held,
    "bases" -> plan.bases.toSeq.map { case (s, of) => Seq[Any](s.partition, s.version, Trace.ranges(of)) },
    "stretches" -> plan.stretches.toSeq.map { case (s, of) => Seq[Any](s.partition, s.first, s.last, Trace.ranges(of)) })

  /** The bins that the partition owned in its snapshot. */
  private def ownedAt(snapshot: Long): Set[Int] =
    owners.find(snapshot).fold(Set.empty[Int])(owners.table(_).binsOf.lift(owner.partitionId).toSeq.flatten.toSet)

  private def drop(gone: Set[Int]): Unit = if (gone.nonEmpty) {
    present --= gone
    val sorted = gone.toSeq.sorted
    rows.remove(sorted, !present(_))
  }

  /** Takes in all bases, and returns the plan with those that were used. If a base can't be read, an older one replaces it. */
  private def takeBases(plan: RecoveryPlan): RecoveryPlan = {
    val foreign = plan.bases.toSeq.sortBy { case (s, _) => (s.partition, s.version) }
      .filterNot { case (s, _) => s.partition == owner.partitionId && held.contains(s.version) }
    val opened = new Ahead[BinKeyedRocksDB](foreign.iterator.map { case (base, of) =>
        val files = source(base.partition)
        () => new CheckpointedBins(files.store, routing, arguments).openAt(base.version, files.id(base.version), of.toSet)
      }, _.close())
    val failed =
      try foreign.flatMap { case (base, of) =>
          val taken =
            try Some(opened.next())
            catch {
              case NonFatal(e) =>
                logWarning(
                  s"the snapshot of version ${base.version} of ${source(base.partition).store} cannot be read; an older " +
                    "one is taken", e)
                source(base.partition).exclude(base.version)
                None
            }
          taken.foreach { from =>
            try {
              drop(present & of.toSet)
              takeIn(from, of)
              present ++= of
            } finally from.close()
          }
          if (taken.isEmpty) of else Nil
        }
      finally opened.close()
    if (failed.isEmpty) plan
    else {
      plan.without(failed.toSet) ++ takeBases(RecoveryPlan.of(failed, owner.partitionId, version, owners, newest))
    }
  }

  private def newest(partition: Int, at: Long): Option[Long] =
    if (partition != owner.partitionId) source(partition).newestSnapshot(at)
    else if (held.exists(_ <= at)) held
    else source(partition).newestSnapshot(math.min(at, ownSnapshotsUpTo))

  private def source(partition: Int): SourceFiles = sources.getOrElseUpdate(
    partition, new SourceFiles(owner.copy(partitionId = partition), routing, arguments, scratch))

  private def takeIn(from: BinKeyedRocksDB, of: Seq[Int]): Unit = {
    val native = RocksDBFields.native(from)
    val all = ColumnFamily.numbered(from, arguments.useColumnFamilies)
    // Creates families without rows, too. Otherwise their numbers would depend on the base that comes first, and differ between
    // attempts of a task.
    if (arguments.useColumnFamilies) all.foreach(theirs => mine(theirs.family))
    // Not one of Spark's temporary directories, because Spark remembers the names of those for as long as the executor lives.
    val dir = new File(scratch, s"base-${UUID.randomUUID()}")
    Utils.createDirectory(dir)
    val files = new SstFiles(dir, arguments.conf)
    val found = RowsByBin()
    val written =
      try all.flatMap { theirs =>
          if (RowForm.hasChecksums(arguments.conf) && mineIfAny(theirs).forall(_.number != theirs.number)) {
            putAnew(from, theirs, of)
            None
          } else {
            theirs.foreachRow(native, native.getDefaultColumnFamily, of) { (key, value) =>
              files.put(mine(theirs.family).nativeKey(theirs.keyIn(key)), Faults.change("recovery.row", value))
              found.add(theirs.binOf(key), RowCounts.of(theirs.family.isInternal, 1))
            }
            files.finish()
          }
        }
      finally files.close()
    rows.takeIn(Seq(written.map(_.file)), found)
    bytes += written.map(_.bytes).sum
  }

  /** Writes rows one by one, because row checksums depend on the family's number, which is another one here. */
  private def putAnew(from: BinKeyedRocksDB, theirs: NumberedFamily, of: Seq[Int]): Unit = from.inStoredForm {
    val native = RocksDBFields.native(from)
    theirs.foreachRow(native, native.getDefaultColumnFamily, of) { (stored, value) =>
      val key = theirs.keyIn(stored)
      db.counting(theirs.binOf(stored)) {
        db.putList(key, RowForm.valuesOf(from, theirs.family.name, key, value), mine(theirs.family).family.name)
      }
      bytes += key.length + value.length
    }
  }

  private def applyChange(change: Change): Unit = {
    val family = mine(change.family.family)
    val name = family.family.name
    def values = RowForm.valuesIn(db, change.key, change.value)
    val isAnew = RowForm.hasChecksums(arguments.conf) && family.number != change.family.number
    db.counting(BinKeyCodec.of(name).binOf(change.key))(change.kind match {
      case RecordType.PUT_RECORD if isAnew => db.putList(change.key, values, name)
      case RecordType.MERGE_RECORD if isAnew => db.mergeList(change.key, values, name)
      case RecordType.PUT_RECORD => db.putStored(change.key, change.value, name)
      case RecordType.MERGE_RECORD => db.mergeStored(change.key, change.value, name)
      case RecordType.DELETE_RECORD => db.remove(change.key, name)
      case other => throw new IllegalStateException(s"a changelog record of kind $other cannot be recovered")
    })
    bytes += change.key.length + Option(change.value).fold(0)(_.length)
  }

  /** The family of the same name in the store that gets the bins; creates it if necessary. */
  private def mine(family: ColumnFamily): NumberedFamily = families.getOrElseUpdate(family.name, {
      val number = Option.when(arguments.useColumnFamilies)(db.createColFamilyIfAbsent(family.name, family.isInternal))
      NumberedFamily(family, number)
    })

  private def mineIfAny(theirs: NumberedFamily): Option[NumberedFamily] =
    ColumnFamily.numbered(db, arguments.useColumnFamilies).find(_.family.name == theirs.family.name)

  private def nextChanges: Option[(Long, HeldChanges)] = {
    if (ahead.isEmpty) ahead = changes.filter(_.hasNext).map(_.next())
    ahead
  }
}

private[binshift] object BinRecovery {
  /** For a store that has loaded its own snapshot `held`, and is about to replay its changelogs. */
  def ofReplay(
      db: BinKeyedRocksDB, store: StateStoreId, routing: EpochRouting, arguments: RocksDBArguments,
      bins: Set[Int], version: Long, held: Long): BinRecovery =
    new BinRecovery(db, store, routing, arguments, bins, version, Some(held))

  /** Adds `bins` to a store that has none of them, with the rows that `source` had at `version`. Returns the rows and bytes. */
  def adopt(
      db: BinKeyedRocksDB, source: StateStoreId, routing: EpochRouting, arguments: RocksDBArguments,
      bins: Seq[Int], version: Long, ownSnapshotsUpTo: Long = Long.MaxValue): (Long, Long) = {
    val before = RocksDBFields.rows(db)
    val recovery = new BinRecovery(db, source, routing, arguments, bins.toSet, version, None, ownSnapshotsUpTo)
    try recovery.advance(version)
    finally recovery.close()
    val came = RocksDBFields.rows(db) - before
    (came.rows + came.internal, recovery.bytes)
  }
}
