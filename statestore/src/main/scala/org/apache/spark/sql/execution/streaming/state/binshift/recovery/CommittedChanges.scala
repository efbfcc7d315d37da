package org.apache.spark.sql.execution.streaming.state.binshift.recovery

import scala.collection.mutable
import scala.util.control.NonFatal

import org.apache.hadoop.fs.Path

import org.apache.spark.internal.Logging
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.execution.streaming.state.binshift.{BinshiftException, Faults}
import org.apache.spark.sql.execution.streaming.state.binshift.checkpoint.{Lineage, SnapshotList, VersionFile}
import org.apache.spark.sql.execution.streaming.state.binshift.keys.{BinKeyCodec, ColumnFamily, NumberedFamily}
import org.apache.spark.sql.execution.streaming.state.binshift.recovery.CommittedChanges.Families
import org.apache.spark.sql.execution.streaming.state.binshift.routing.EpochRouting
import org.apache.spark.sql.execution.streaming.state.binshift.storage.{RocksDBArguments, RowForm}

/**
 * Reads what a store has committed: its changelogs, and which snapshots and column families it had. Recoveries, and copies that catch
 * up with their source, read changelogs in this way.
 *
 * The ids under which versions were committed come from changelogs, which are kept for longer than Spark keeps its commit log.
 * The directory is listed once, and only if somebody asks for snapshots or families.
 *
 * Thread-safe. One lock, that of this object, guards what is known; changelogs are read without it.
 */
private[binshift] final class CommittedChanges(
    val store: StateStoreId, routing: EpochRouting, arguments: RocksDBArguments) extends AutoCloseable with Logging {

  private val root = store.storeCheckpointLocation()
  private lazy val manager = VersionFile.opened(store, arguments.conf, arguments.hadoopConf)
  private lazy val lineage = Option.when(arguments.enableStateStoreCheckpointIds)(new Lineage(Lineage.in(manager)))
  private lazy val snapshots = new CommittedSnapshots(VersionFile.list(store, arguments.hadoopConf), lineage)
  private val families = mutable.Map.empty[Long, Families]

  /** The newest snapshot up to `version`, which is in the commit log, or which another partition took bins of. */
  def newestSnapshot(version: Long): Option[Long] = synchronized {
    begin(version)
    snapshots.newest(version)
  }

  /** Ignores a snapshot from now on. */
  def exclude(snapshot: Long): Unit = synchronized(snapshots.exclude(snapshot))

  /**
   * The id of `version`; `None` under format 1.
   *
   * @param last the same version or a later one, which is in the commit log, or at which bins moved
   */
  def id(version: Long, last: Long): Option[String] = synchronized(lineage.map { ids =>
    ids.id(version).orElse {
      begin(last)
      ids.id(version)
    }.orElse(routing.committedId(store, version)).getOrElse(
      throw BinshiftException("CHECKPOINT_ID_MISSING", "version" -> version).migration(
        s"the changelogs in $root do not say which file of version $version was committed; restore them from a copy"))
  })

  /**
   * The families that the store itself had at `version`, by the numbers in its changelogs. Its rows may have other numbers wherever
   * else they are, also in a private copy of the store. Fails if the list of a snapshot can't be read, unless the snapshot is ignored.
   *
   * Relies on Spark: a commit that makes a column family makes a snapshot, too.
   */
  def familiesAt(version: Long, last: Long): Families =
    if (!arguments.useColumnFamilies) Map(None -> NumberedFamily(ColumnFamily.Default, None))
    else synchronized {
      id(version, last)
      // A snapshot whose rows can't be read may say all the same which families there are.
      snapshots.connected(version).flatMap(familiesIn).nextOption().getOrElse(Map.empty)
        .withDefault(number =>
          throw BinshiftException("SOURCE_DAMAGED").migration(
            s"the changelog of version $version in $root has a column family that no snapshot before it has " +
              s"(number ${number.getOrElse("none")}); restore the snapshots from a copy"))
    }

  /**
   * Runs `body` with the changes of `version`, of all bins.
   *
   * @param last  the same version or a later one, which is in the commit log, or at which bins moved
   * @param known the store's families, by number; throws if there is no such family
   */
  def reading[T](version: Long, last: Long, known: Option[Short] => NumberedFamily)(body: Iterator[Change] => T): T = {
    val reader = manager.getChangelogReader(version, id(version, last))
    try body(reader.map { case (kind, logged, value) =>
        val native = RowForm.keyOf(kind, logged, arguments.conf)
        val family = known(CommittedChanges.numberIn(native, arguments.useColumnFamilies))
        Change(kind, family, family.keyIn(native), value)
      })
    finally reader.closeIfNeeded()
  }

  override def close(): Unit = synchronized(manager.close())

  private def begin(version: Long): Unit =
    lineage.filter(ids => version > 0 && !ids.knows(version)).foreach { ids =>
      CommittedChanges.idOf(store, version, routing, arguments).foreach(ids.add(version, _))
    }

  private def familiesIn(snapshot: Long): Option[Families] =
    try Some(families.getOrElseUpdate(snapshot, readFamilies(snapshot)))
    catch {
      case NonFatal(e) if snapshots.isExcluded(snapshot) =>
        logInfo(s"$store: version $snapshot does not say which column families there were; an older snapshot is asked: $e")
        None
    }

  private def readFamilies(snapshot: Long): Families = {
    Faults.at("families.read", store.partitionId)
    val zip = new Path(root, VersionFile.name(snapshot, id(snapshot, snapshot), VersionFile.Snapshot))
    val info = SnapshotList.read(zip.getFileSystem(arguments.hadoopConf), zip, arguments.localRootDir.getParentFile)
    val isInternal = info.columnFamilyTypeMap.getOrElse(Map.empty[String, Any])
    info.columnFamilyMapping.getOrElse(Map.empty[String, Any]).map { case (name, number) =>
      val id = Some(number.toString.toShort)
      id -> NumberedFamily(ColumnFamily(name, isInternal.get(name).exists(_.toString.toBoolean)), id)
    }.toMap
  }
}

private[binshift] object CommittedChanges {
  /** A store's families, by the numbers that they have there. */
  type Families = Map[Option[Short], NumberedFamily]

  /** The number of the family of a native key; `None` in a store without families. */
  def numberIn(native: Array[Byte], useColumnFamilies: Boolean): Option[Short] =
    Option.when(useColumnFamilies)(NumberedFamily.numberIn(native))

  /** The id under which `store` committed `version`, from the commit log; `None` unless the checkpoint has format 2. */
  def idOf(store: StateStoreId, version: Long, routing: EpochRouting, arguments: RocksDBArguments): Option[String] =
    Option.when(arguments.enableStateStoreCheckpointIds)(routing.checkpointIds(version).of(store))
}

/**
 * A record of a changelog.
 *
 * @param family the family, with its number in the store that wrote it
 * @param key    the key without the family's prefix
 * @param value  the value in its stored form, with its row checksum; null if the row was deleted
 */
private[binshift] final case class Change(
    kind: RecordType.Value, family: NumberedFamily, key: Array[Byte], value: Array[Byte]) {

  def bin: Int = BinKeyCodec.of(family.family.name).binOf(key)

  /** The bytes of key and value. */
  def bytes: Long = key.length.toLong + (if (value == null) 0 else value.length)
}

private[binshift] object Change {
  /** Does what a record of `kind` says. */
  def by[T](kind: RecordType.Value)(put: => T, merge: => T, delete: => T): T = kind match {
    case RecordType.PUT_RECORD => put
    case RecordType.MERGE_RECORD => merge
    case RecordType.DELETE_RECORD => delete
    case other => throw new IllegalStateException(s"a changelog record of kind $other cannot be applied")
  }
}
