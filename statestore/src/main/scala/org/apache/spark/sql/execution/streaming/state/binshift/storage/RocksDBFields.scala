package org.apache.spark.sql.execution.streaming.state.binshift.storage

import java.lang.invoke.{MethodHandles, VarHandle}
import java.util.concurrent.{ConcurrentHashMap, ConcurrentMap}
import java.util.concurrent.atomic.AtomicBoolean

import org.rocksdb.{FlushOptions, RocksDB => NativeRocksDB, StringAppendOperator}

import org.apache.spark.sql.execution.streaming.state.binshift.BinshiftException
import org.apache.spark.sql.execution.streaming.state.binshift.statistics.RowCounts
import org.apache.spark.sql.execution.streaming.state.{RocksDB, RocksDBConf, RocksDBFileManager, RocksDBFileMapping, RocksDBImmutableFile, StateStoreChangelogWriter}

/**
 * Gives access to private fields of Spark's `RocksDB`, which moving whole files needs: the native database, into which files are
 * ingested, and the counters of rows, which ingested rows don't change. Also gives access to the file manager's list of the files
 * of snapshots.
 *
 * Relies on Spark: the names of the fields, and that `commit` stores the counters together with the version that is being
 * written. If a field is missing, the first load fails and names it.
 */
private[binshift] object RocksDBFields {
  private val Db = handle("db", classOf[NativeRocksDB])
  private val Rows = handle("numKeysOnWritingVersion", classOf[Long])
  private val InternalRows = handle("numInternalKeysOnWritingVersion", classOf[Long])

  private val Changelog = handle("changelogWriter", classOf[Option[_]])
  private val Forced = handle("shouldForceSnapshot", classOf[AtomicBoolean])
  private val LastSnapshot = handle(LoadsAndCommits.LastSnapshot, classOf[Long])
  private val Mapping = {
    // In some versions of Spark, the field is named after its class.
    val name = classOf[RocksDB].getDeclaredFields.find(_.getType == classOf[RocksDBFileMapping])
    handle(name.fold("rocksDBFileMapping")(_.getName), classOf[RocksDBFileMapping])
  }
  private val SnapshotFiles = handle("versionToRocksDBFiles", classOf[ConcurrentHashMap[_, _]], classOf[RocksDBFileManager])

  /** The version of the last snapshot, from which Spark counts to the next one. */
  def lastSnapshot(db: RocksDB): Long = LastSnapshot.getVolatile(db).asInstanceOf[Long]

  def setLastSnapshot(db: RocksDB, version: Long): Unit = LastSnapshot.setVolatile(db, version)

  /**
   * The known files of snapshots, by version and id, for snapshots that were loaded or uploaded here. Spark removes the entry of
   * a snapshot that it deletes.
   */
  def snapshotFiles(files: RocksDBFileManager): ConcurrentMap[(Long, Option[String]), Seq[RocksDBImmutableFile]] =
    SnapshotFiles.get(files).asInstanceOf[ConcurrentMap[(Long, Option[String]), Seq[RocksDBImmutableFile]]]

  /** True if the next commit makes a snapshot in any case. */
  def mustSnapshot(db: RocksDB): Boolean =
    !db.conf.enableChangelogCheckpointing || db.conf.minDeltasForSnapshot <= 1 ||
      Forced.get(db).asInstanceOf[AtomicBoolean].get

  /**
   * True if the commit of the loaded version writes no changelog, although there usually are changelogs: the store began empty,
   * and the commit uploads all of it.
   */
  def isUploadedWhole(db: RocksDB): Boolean =
    db.conf.enableChangelogCheckpointing && Changelog.getVolatile(db).asInstanceOf[Option[_]].isEmpty

  /**
   * Cancels a snapshot that was forced for state that has been uploaded by now. Spark would still make it after a commit without
   * a changelog, such as that of a new partition with column families.
   */
  def forgetForced(db: RocksDB): Unit = Forced.get(db).asInstanceOf[AtomicBoolean].set(false)

  /** Makes the next commit write a snapshot. */
  def forceSnapshot(db: RocksDB): Unit = Forced.get(db).asInstanceOf[AtomicBoolean].set(true)

  /**
   * Makes the next snapshot upload all of its files, even those that seem to be in the checkpoint. Called by the task's thread.
   */
  def forgetUploaded(db: RocksDB): Unit = Mapping.get(db).asInstanceOf[RocksDBFileMapping].clear()

  /**
   * Runs `body` without logging its operations, even if a changelog is open. The rows of an adopted bin are in its old owner's
   * checkpoint. If they were logged here, too, they would come after changes that the query has made since, and a recovery would
   * let the older rows win.
   */
  def withoutChangelog[T](db: RocksDB)(body: => T): T = {
    val open = Changelog.getVolatile(db)
    Changelog.setVolatile(db, None)
    try body
    finally {
      // An operator's Python thread may outlive its task. In that case, the changelog of the next task stays open.
      Changelog.compareAndSet(db, None, open): Unit
    }
  }

  /** Aborts the changelog that was begun and not committed, if there is one. */
  def endChangelog(db: RocksDB): Unit = {
    val open = Changelog.getVolatile(db).asInstanceOf[Option[StateStoreChangelogWriter]]
    try open.foreach(_.abort())
    finally Changelog.setVolatile(db, None)
  }

  /**
   * Makes RocksDB write its memory to a file in the background. Otherwise, ingesting files would wait for that, in the epoch of a
   * step.
   */
  def beginFlush(db: RocksDB): Unit = {
    val options = new FlushOptions().setWaitForFlush(false).setAllowWriteStall(true)
    try native(db).flush(options)
    finally options.close()
  }

  def native(db: RocksDB): NativeRocksDB = Db.getVolatile(db).asInstanceOf[NativeRocksDB]

  def rows(db: RocksDB): RowCounts =
    RowCounts(Rows.getVolatile(db).asInstanceOf[Long], InternalRows.getVolatile(db).asInstanceOf[Long])

  /** The number of rows in the families that users see, or in the others. Read by each write. */
  def rows(db: RocksDB, isInternal: Boolean): Long =
    (if (isInternal) InternalRows else Rows).getVolatile(db).asInstanceOf[Long]

  /** Sets the counters of the version that is being written, if rows are counted at all. */
  def setRows(db: RocksDB, counts: RowCounts): Unit = if (db.conf.trackTotalNumberOfRows) {
    Rows.setVolatile(db, counts.rows)
    InternalRows.setVolatile(db, counts.internal)
  }

  /** The operator that joins the values of one key, in the form in which Spark stores several of them. */
  def mergeOperator(conf: RocksDBConf): StringAppendOperator = new StringAppendOperator(RowForm.delimiter(conf))

  private def handle(name: String, kind: Class[_], of: Class[_] = classOf[RocksDB]): VarHandle =
    try {
      MethodHandles.privateLookupIn(of, MethodHandles.lookup()).findVarHandle(of, name, kind)
    } catch {
      case e: ReflectiveOperationException => throw BinshiftException.unsupportedVersion(
          s"Spark's ${of.getSimpleName} has no field $name of type ${kind.getName} (${e.getMessage}); use the binshift " +
            "made for your Spark")
    }
}
