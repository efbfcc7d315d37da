package org.apache.spark.sql.execution.streaming.state.binshift.storage

import java.lang.invoke.{MethodHandles, VarHandle}
import java.util.concurrent.{ConcurrentHashMap, ConcurrentMap}
import java.util.concurrent.atomic.AtomicBoolean

import org.rocksdb.{FlushOptions, RocksDB => NativeRocksDB, StringAppendOperator}

import org.apache.spark.sql.execution.streaming.state.binshift.BinshiftException
import org.apache.spark.sql.execution.streaming.state.binshift.statistics.RowCounts
import org.apache.spark.sql.execution.streaming.state.{RocksDB, RocksDBConf, RocksDBFileManager, RocksDBFileMapping, RocksDBImmutableFile, StateStoreChangelogWriter}

/**
 * Private fields of Spark's `RocksDB` that moving whole files needs: the native database, into which
 * files are put beside Spark's own writes, and the counters of rows, which such rows do not move. And what its file manager knows of
 * the files of snapshots.
 *
 * Relies on Spark: the names of the fields, and that `commit` stores the counters of the version that
 * is being written with it. A name that is gone fails the first load, with the reason.
 */
private[binshift] object RocksDBFields {
  private val Db = handle("db", classOf[NativeRocksDB])
  private val Rows = handle("numKeysOnWritingVersion", classOf[Long])
  private val InternalRows = handle("numInternalKeysOnWritingVersion", classOf[Long])

  private val Changelog = handle("changelogWriter", classOf[Option[_]])
  private val Forced = handle("shouldForceSnapshot", classOf[AtomicBoolean])
  private val LastSnapshot = handle(LoadsAndCommits.LastSnapshot, classOf[Long])
  private val Mapping = {
    // Its name has that of its class in some versions.
    val name = classOf[RocksDB].getDeclaredFields.find(_.getType == classOf[RocksDBFileMapping])
    handle(name.fold("rocksDBFileMapping")(_.getName), classOf[RocksDBFileMapping])
  }
  private val SnapshotFiles = handle("versionToRocksDBFiles", classOf[ConcurrentHashMap[_, _]], classOf[RocksDBFileManager])

  /** The version of the last snapshot, from which Spark counts to the next one. */
  def lastSnapshot(db: RocksDB): Long = LastSnapshot.getVolatile(db).asInstanceOf[Long]

  def setLastSnapshot(db: RocksDB, version: Long): Unit = LastSnapshot.setVolatile(db, version)

  /**
   * What is known of the files of snapshots, by version and id: of those that were loaded or uploaded here. Spark takes one out when it
   * deletes the snapshot.
   */
  def snapshotFiles(files: RocksDBFileManager): ConcurrentMap[(Long, Option[String]), Seq[RocksDBImmutableFile]] =
    SnapshotFiles.get(files).asInstanceOf[ConcurrentMap[(Long, Option[String]), Seq[RocksDBImmutableFile]]]

  /** Whether the next commit makes a snapshot in any case. */
  def mustSnapshot(db: RocksDB): Boolean =
    !db.conf.enableChangelogCheckpointing || db.conf.minDeltasForSnapshot <= 1 ||
      Forced.get(db).asInstanceOf[AtomicBoolean].get

  /** Whether the commit of the loaded version has no changelog, though they are kept: it began empty, and all of it is uploaded. */
  def isUploadedWhole(db: RocksDB): Boolean =
    db.conf.enableChangelogCheckpointing && Changelog.getVolatile(db).asInstanceOf[Option[_]].isEmpty

  /**
   * Has the next commit make no snapshot that was wanted for what is uploaded by now. Spark keeps wanting it after a commit
   * without a changelog, as of a new partition with column families.
   */
  def forgetForced(db: RocksDB): Unit = Forced.get(db).asInstanceOf[AtomicBoolean].set(false)

  /** Has the next commit make a snapshot. */
  def forceSnapshot(db: RocksDB): Unit = Forced.get(db).asInstanceOf[AtomicBoolean].set(true)

  /** Has the next snapshot upload all of its files, also those that are in the checkpoint as far as is known. By the task's thread. */
  def forgetUploaded(db: RocksDB): Unit = Mapping.get(db).asInstanceOf[RocksDBFileMapping].clear()

  /**
   * Runs `body`, whose operations on rows reach no changelog, also if one is open. What a bin brings along is in that of its
   * old owner; logged here as well, it would come after what the query has written since, and win over it in a recovery.
   */
  def withoutChangelog[T](db: RocksDB)(body: => T): T = {
    val open = Changelog.getVolatile(db)
    Changelog.setVolatile(db, None)
    try body
    finally {
      // A thread of an operator in Python may outlive its task; the changelog of the next one stays then.
      Changelog.compareAndSet(db, None, open): Unit
    }
  }

  /** Ends the changelog that was begun and not committed, if there is one. */
  def endChangelog(db: RocksDB): Unit = {
    val open = Changelog.getVolatile(db).asInstanceOf[Option[StateStoreChangelogWriter]]
    try open.foreach(_.abort())
    finally Changelog.setVolatile(db, None)
  }

  /**
   * Has RocksDB write what it has in memory to a file, in the background: files that are taken in else wait for that, in the epoch
   * of a step.
   */
  def beginFlush(db: RocksDB): Unit = {
    val options = new FlushOptions().setWaitForFlush(false).setAllowWriteStall(true)
    try native(db).flush(options)
    finally options.close()
  }

  def native(db: RocksDB): NativeRocksDB = Db.getVolatile(db).asInstanceOf[NativeRocksDB]

  def rows(db: RocksDB): RowCounts =
    RowCounts(Rows.getVolatile(db).asInstanceOf[Long], InternalRows.getVolatile(db).asInstanceOf[Long])

  /** Rows of the families that users see, or of the others. On the write path. */
  def rows(db: RocksDB, isInternal: Boolean): Long =
    (if (isInternal) InternalRows else Rows).getVolatile(db).asInstanceOf[Long]

  /** Sets the counters of the version that is being written; only while they are kept at all. */
  def setRows(db: RocksDB, counts: RowCounts): Unit = if (db.conf.trackTotalNumberOfRows) {
    Rows.setVolatile(db, counts.rows)
    InternalRows.setVolatile(db, counts.internal)
  }

  /** What joins the values of one key: the form in which Spark stores several of them. */
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
