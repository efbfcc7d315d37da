package org.apache.spark.sql.execution.streaming.state.binshift.recovery

import java.io.File

import scala.collection.mutable

import org.apache.hadoop.fs.Path

import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.execution.streaming.state.binshift.{BinshiftException, Faults}
import org.apache.spark.sql.execution.streaming.state.binshift.checkpoint.{Lineage, SnapshotList, VersionFile}
import org.apache.spark.sql.execution.streaming.state.binshift.keys.{BinKeyCodec, ColumnFamily, NumberedFamily}
import org.apache.spark.sql.execution.streaming.state.binshift.routing.EpochRouting
import org.apache.spark.sql.execution.streaming.state.binshift.storage.{RocksDBArguments, RowForm}

/**
 * A record of a changelog.
 *
 * @param family the family, with its number in the store that wrote it
 * @param key    the key without the family's prefix
 * @param value  the value in its stored form, with its row checksum
 */
private[binshift] final case class Change(
    kind: RecordType.Value, family: NumberedFamily, key: Array[Byte], value: Array[Byte])

/**
 * Reads the files of one partition for a recovery. Lists the partition's directory once.
 *
 * Thread-safe.
 *
 * @param store   the partition's store
 * @param scratch a directory of the recovery's own
 */
private[binshift] final class SourceFiles(
    val store: StateStoreId, routing: EpochRouting, arguments: RocksDBArguments, scratch: File) extends AutoCloseable {
  import SourceFiles._

  private val root = store.storeCheckpointLocation()
  private val fs = root.getFileSystem(arguments.hadoopConf)
  private lazy val manager = VersionFile.opened(store, arguments.conf, arguments.hadoopConf)
  private lazy val lineage = Option.when(arguments.enableStateStoreCheckpointIds)(new Lineage(Lineage.in(manager)))
  private lazy val snapshots = new CommittedSnapshots(VersionFile.list(store, arguments.hadoopConf), lineage)
  private val families = mutable.Map.empty[Long, Map[Option[Short], NumberedFamily]]

  /** The newest snapshot up to `version`, from which another partition adopted bins. */
  def newestSnapshot(version: Long): Option[Long] = synchronized {
    begin(version)
    snapshots.newest(version)
  }

  /** Ignores a snapshot from now on. */
  def exclude(snapshot: Long): Unit = synchronized(snapshots.exclude(snapshot))

  /** The id of `version`, from which one gets to a version whose bins were adopted; `None` under format 1. */
  def id(version: Long): Option[String] = synchronized {
    lineage.map(_.id(version).getOrElse(throw BinshiftException("CHECKPOINT_ID_MISSING", "version" -> version).migration(
          s"the changelogs in $root do not say which file of version $version was committed; restore them from a copy")))
  }

  /** The changes of `bins` in `version`. `last` is a later version, or the same, whose bins were adopted. */
  def changes(version: Long, last: Long, bins: Int => Boolean): HeldChanges = {
    Faults.at("checkpoint.changes", store.partitionId)
    val (id, known) = synchronized {
      begin(last)
      (this.id(version), familiesAt(version))
    }
    val reader = manager.getChangelogReader(version, id)
    val changes = reader.flatMap { case (kind, logged, value) =>
      val native = RowForm.keyOf(kind, logged, arguments.conf)
      val family = familyOf(native, known, arguments.useColumnFamilies).getOrElse(
        throw BinshiftException("SOURCE_DAMAGED").migration(
          s"the changelog of version $version in $root has a column family that no snapshot before it has; restore the " +
            "snapshots from a copy"))
      val key = family.keyIn(native)
      Option.when(bins(BinKeyCodec.of(family.family.name).binOf(key)))(Change(kind, family, key, value))
    }
    try {
      val held = HeldChanges.of(changes, new File(scratch, s"changes-${store.partitionId}-$version"), MaxHeldBytes)
      if (held.isInFile) Faults.at("recovery.file", store.partitionId)
      held
    } finally reader.closeIfNeeded()
  }

  override def close(): Unit = synchronized(manager.close())

  private def begin(version: Long): Unit =
    lineage.filter(ids => version > 0 && !ids.knows(version)).foreach(_.add(version, routing.checkpointIds(version).of(store)))

  /** Relies on Spark: a commit that makes a column family makes a snapshot, too. */
  private def familiesAt(version: Long): Map[Option[Short], NumberedFamily] =
    if (!arguments.useColumnFamilies) Map(None -> NumberedFamily(ColumnFamily.Default, None))
    else snapshots.newest(version).fold(Map.empty[Option[Short], NumberedFamily]) { snapshot =>
      families.getOrElseUpdate(snapshot, {
          val info = metadata(snapshot)
          val isInternal = info.columnFamilyTypeMap.getOrElse(Map.empty[String, Any])
          info.columnFamilyMapping.getOrElse(Map.empty[String, Any]).map { case (name, number) =>
            val id = Some(number.toString.toShort)
            id -> NumberedFamily(ColumnFamily(name, isInternal.get(name).exists(_.toString.toBoolean)), id)
          }.toMap
        })
    }

  private def metadata(snapshot: Long): RocksDBCheckpointMetadata = {
    val name = VersionFile.name(snapshot, id(snapshot), VersionFile.Snapshot)
    SnapshotList.read(fs, new Path(root, name), new File(scratch, s"metadata-${store.partitionId}-$snapshot"))
      .getOrElse(throw BinshiftException("SOURCE_DAMAGED").migration(s"$root/$name has no metadata; restore it from a copy"))
  }
}

private[binshift] object SourceFiles {
  /** How many bytes of a changelog that was read ahead stay in memory. [[Ahead]] bounds how many of them a store holds. */
  private val MaxHeldBytes = 512L << 10

  /** The family of a native key. */
  def familyOf(
      native: Array[Byte], known: Map[Option[Short], NumberedFamily], useColumnFamilies: Boolean): Option[NumberedFamily] =
    known.get(Option.when(useColumnFamilies)(NumberedFamily.numberIn(native)))
}
