package org.apache.spark.sql.execution.streaming.state.binshift.storage

import java.io.File

import scala.util.control.NonFatal

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path

import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.execution.streaming.state.binshift.Faults
import org.apache.spark.sql.execution.streaming.state.binshift.checkpoint.VersionFile
import org.apache.spark.sql.execution.streaming.state.binshift.statistics.RowsByBin
import org.apache.spark.util.Utils

/**
 * Manages the checkpoint files of one binned partition. It differs from Spark's file manager, and from [[WarmFileManager]], in
 * four more ways.
 *
 *  - Changelogs don't contain the rows that switches adopted or released. When a changelog is replayed, the rows that its version
 *    takes from other partitions come before its records (`replayOf`).
 *  - Files that recoveries read are kept (`RetainedVersions`).
 *  - A private copy fetches only those files of a snapshot that contain wanted bins.
 *  - Snapshots say how many rows each bin has ([[SnapshotRows]]).
 *
 * Relies on Spark: a replay opens the changelogs one by one, in order, through `getChangelogReader`, and iterates each before it
 * opens the next. A reader that is only asked for its lineage isn't iterated. A commit that makes a snapshot lists the files of the
 * snapshot's directory with `listRocksDBFiles` before anybody can upload it.
 *
 * The constructor of `RocksDB` creates it, which is why the `binding` comes later.
 */
private[binshift] final class BinnedFileManager(
    dfsRootDir: String,
    localTempDir: File,
    hadoopConf: Configuration,
    codecName: String,
    loggingId: String,
    storeConf: StateStoreConf,
    fileChecksumEnabled: Boolean,
    fileChecksumThreadPoolSize: Option[Int])
  extends WarmFileManager(dfsRootDir, localTempDir, hadoopConf, codecName, loggingId, storeConf,
    fileChecksumEnabled, fileChecksumThreadPoolSize) {

  @volatile private var binding: Option[BinnedFileManager.Binding] = None
  private var beginning: Option[WholeFiles] = None
  private var snapshot = (0L, Option.empty[String])
  /** The thread that commits, and the rows that a snapshot of the commit has. */
  @volatile private var committing = Option.empty[(Thread, RowsByBin)]

  def bind(to: BinnedFileManager.Binding): Unit = binding = Some(to)

  override protected def partition: Int = binding.fold(Faults.AnyPartition)(_.database.partition)

  /**
   * Runs `body`, in which Spark loads the store. Instead of the store's own snapshot and changelogs, Spark gets `files` and no
   * changes.
   */
  def beginningWith[T](files: WholeFiles)(body: => T): T = {
    beginning = Some(files)
    try body
    finally beginning = None
  }

  /** Runs `commit`. If it makes a snapshot, that says that the store has `rows`. */
  def committing[T](rows: RowsByBin)(commit: => T): T = {
    committing = Some(Thread.currentThread -> rows)
    try commit
    finally committing = None
  }

  override def listRocksDBFiles(localDir: File): (Seq[File], Seq[File]) = {
    committing.foreach { case (thread, rows) => if (thread eq Thread.currentThread) SnapshotRows.write(localDir, rows) }
    super.listRocksDBFiles(localDir)
  }

  override def getChangelogReader(version: Long, checkpointUniqueId: Option[String]): StateStoreChangelogReader = {
    val changes = super.getChangelogReader(version, checkpointUniqueId)
    val replay = if (beginning.isDefined) Some(BinnedFileManager.Nothing) else binding.flatMap(_.replayOf(version))
    replay.fold(changes)(new ReplayedChanges(changes, _, binding.get.database, new Path(dfsRootDir), hadoopConf))
  }

  override def loadCheckpointFromDfs(
      version: Long,
      localDir: File,
      rocksDBFileMapping: RocksDBFileMapping,
      checkpointUniqueId: Option[String]): RocksDBCheckpointMetadata = {
    binding.foreach(_.beginsAnew())
    def whole = super.loadCheckpointFromDfs(version, localDir, rocksDBFileMapping, checkpointUniqueId)
    def wanted = binding.flatMap(_.wanted).filter(_ => version > 0) match {
      case None => whole
      case Some(bins) =>
        val zip = new Path(dfsRootDir, VersionFile.name(version, checkpointUniqueId, VersionFile.Snapshot))
        try PartialSnapshot.fetch(zip, localDir, bins, partition, hadoopConf)
        catch {
          case NonFatal(e) =>
            logWarning(s"$zip could not be fetched in part, and is fetched as a whole", e)
            Utils.deleteRecursively(localDir)
            Utils.createDirectory(localDir)
            whole
        }
    }
    val metadata = beginning.fold(wanted)(begin(_, localDir, rocksDBFileMapping))
    snapshot = (version, checkpointUniqueId)
    val rows = beginning.map(_.rows)
      .orElse(if (version > 0) SnapshotRows.take(localDir, metadata) else Some(RowsByBin()))
    binding.foreach(_.database.countFrom(rows))
    metadata
  }

  /** The version and the id of the snapshot with which the last load from files began. */
  def loadedSnapshot: (Long, Option[String]) = snapshot

  /**
   * Gives Spark the files with which the store begins. None of them is in this partition's checkpoint, so the mapping is cleared,
   * and the next snapshot uploads all of them.
   */
  private def begin(
      files: WholeFiles, localDir: File, mapping: RocksDBFileMapping): RocksDBCheckpointMetadata = {
    mapping.clear()
    Utils.deleteRecursively(localDir)
    Utils.createDirectory(localDir)
    files.into(localDir)
    files.metadata
  }

  override protected def oldVersions(retain: Int): Option[OldVersions.Decision] = binding.flatMap(_.keptFrom(retain))
}

private[binshift] object BinnedFileManager {
  /** The questions that the file manager asks the database. */
  trait Binding {
    /** Called when a load begins with another snapshot, or again with the same one. The database has lost what was replayed. */
    def beginsAnew(): Unit

    /**
     * Returns what the replay of the changelog of `version` needs besides the changelog's records; `None` if it needs nothing,
     * and the records aren't counted by bin either.
     */
    def replayOf(version: Long): Option[Replay]

    /** The bins that are read, if this is a private copy, of which nobody makes snapshots. */
    def wanted: Option[Set[Int]]

    /** Decides which files are kept if Spark retains `retain` versions; `None` if all are. Called by maintenance threads. */
    def keptFrom(retain: Int): Option[OldVersions.Decision]

    /** The database that is loaded. */
    def database: BinKeyedRocksDB
  }

  /** Takes part in the replay of a changelog. */
  trait Replay {
    /** Called before the first record is asked for. */
    def begin(): Unit

    /** Returns whether Spark should apply a record. Key and value are as they were logged; a record that deletes has no value. */
    def keeps(kind: RecordType.Value, key: Array[Byte], value: Array[Byte]): Boolean

    /** Called after the last record. */
    def end(): Unit = ()

    /** Called if the replay fails, before the database is closed. May be called more than once. */
    def fail(): Unit = ()
  }

  /** Leaves all records to Spark. */
  object BySpark extends Replay {
    override def begin(): Unit = ()
    override def keeps(kind: RecordType.Value, key: Array[Byte], value: Array[Byte]): Boolean = true
  }

  private object Nothing extends Replay {
    override def begin(): Unit = ()
    override def keeps(kind: RecordType.Value, key: Array[Byte], value: Array[Byte]): Boolean = false
  }
}
