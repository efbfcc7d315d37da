package org.apache.spark.sql.execution.streaming.state.binshift.storage

import java.io.File

import scala.util.control.NonFatal

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path

import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.execution.streaming.state.binshift.Faults
import org.apache.spark.sql.execution.streaming.state.binshift.checkpoint.VersionFile
import org.apache.spark.util.Utils

/**
 * The checkpoint files of one binned partition, with three more differences from Spark's.
 *
 * Changelogs do not hold what switches adopted and released; the routing log says that, and what a version takes from
 * other partitions comes before its own records (`replayOf`). What recoveries read is kept
 * (`RetainedVersions`). And of a snapshot, a private copy fetches the files that hold wanted bins.
 *
 * Relies on Spark: replay opens the changelogs one by one, in order, through `getChangelogReader`, and
 * iterates each before it opens the next; whoever only wants the lineage does not iterate.
 *
 * Made inside the constructor of `RocksDB`, hence the `binding` that comes later.
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
  private var beginning: Option[BinnedFileManager.Beginning] = None
  private var snapshot = (0L, Option.empty[String])

  def bind(to: BinnedFileManager.Binding): Unit = binding = Some(to)

  /** Runs `body`, in which Spark loads the store: instead of its own snapshot and changelogs, it gets `files`, and no changes. */
  def beginningWith[T](files: BinnedFileManager.Beginning)(body: => T): T = {
    beginning = Some(files)
    try body
    finally beginning = None
  }

  override def getChangelogReader(version: Long, checkpointUniqueId: Option[String]): StateStoreChangelogReader = {
    val changes = super.getChangelogReader(version, checkpointUniqueId)
    val replay = if (beginning.isDefined) Some(BinnedFileManager.Nothing) else binding.flatMap(_.replayOf(version))
    replay.fold(changes)(new ReplayedChanges(changes, _, new Path(dfsRootDir), hadoopConf))
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
        try PartialSnapshot.fetch(zip, localDir, bins, binding.fold(Faults.AnyPartition)(_.partition), hadoopConf)
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
    metadata
  }

  /** The version and the id of the snapshot that the last load from files began with. */
  def loadedSnapshot: (Long, Option[String]) = snapshot

  /** None of the files is one of this partition's checkpoint: the next snapshot uploads all. */
  private def begin(
      files: BinnedFileManager.Beginning, localDir: File, mapping: RocksDBFileMapping): RocksDBCheckpointMetadata = {
    mapping.clear()
    Utils.deleteRecursively(localDir)
    Utils.createDirectory(localDir)
    files.into(localDir)
    files.metadata
  }

  override def deleteOldVersions(retain: Int, maxToDelete: Int, minToDelete: Long): Unit = if (!areFewOld(retain, minToDelete)) {
    for (kept <- binding.flatMap(_.keptFrom(retain))) {
      // Spark bounds the work of one round in this way.
      val most =
        Option.when(maxToDelete >= 0)(kept.listed.filter(_.isSnapshot).map(_.version).minOption).flatten.map(_ + maxToDelete)
      deleteBefore((most ++ Seq(kept.from)).min, kept.listed)
    }
    Faults.at("versions.deleted")
  }
}

private[binshift] object BinnedFileManager {
  /** What the database tells its file manager. */
  trait Binding {
    /** A load begins with another snapshot, or once more with the same: nothing of what was replayed is in the database. */
    def beginsAnew(): Unit

    /** What replaying the changelog of `version` takes beside its records; `None` if nothing. */
    def replayOf(version: Long): Option[Replay]

    /** The only bins that are read, of a private copy; nobody makes snapshots of it. */
    def wanted: Option[Set[Int]]

    /** From which version on files are kept, if Spark retains so many versions; `None` if all are. Called by maintenance threads. */
    def keptFrom(retain: Int): Option[Kept]

    def partition: Int
  }

  /**
   * @param from   all versions from this one on are
   * @param listed what was there when that was decided
   */
  final case class Kept(from: Long, listed: Seq[VersionFile])

  /** Files with which a store begins that has none. */
  trait Beginning {
    /** Fills an empty directory with them. */
    def into(dir: File): Unit

    def metadata: RocksDBCheckpointMetadata
  }

  /** What happens besides while a changelog is replayed. */
  trait Replay {
    /** Called before the first record is asked for. */
    def begin(): Unit

    /** Whether Spark is to apply a record. Key and value are as they were logged; a record that deletes has no value. */
    def keeps(kind: RecordType.Value, key: Array[Byte], value: Array[Byte]): Boolean

    /** Called after the last record. */
    def end(): Unit = ()

    /** Called if the replay fails, before the database is closed; by whoever finds out, maybe more than once. */
    def fail(): Unit = ()
  }

  private object Nothing extends Replay {
    override def begin(): Unit = ()
    override def keeps(kind: RecordType.Value, key: Array[Byte], value: Array[Byte]): Boolean = false
  }
}
