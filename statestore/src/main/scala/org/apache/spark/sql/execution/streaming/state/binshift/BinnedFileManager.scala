package org.apache.spark.sql.execution.streaming.state.binshift

import java.io.File

import scala.collection.Map

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path

import org.apache.spark.io.CompressionCodec
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager
import org.apache.spark.sql.execution.streaming.state._

/**
 * The checkpoint files of one partition, with three differences from Spark's.
 *
 * A changelog does not hold what the switch at its epoch adopted and released; the routing log says
 * that, and so replaying the changelog begins with the switch. What other partitions adopted from
 * this one is kept until they hold it in a snapshot of their own. And snapshots that were still to be uploaded when
 * their run ended are not, if the next run makes their version anew.
 *
 * Relies on Spark: replay opens the changelogs one by one, in order, through `getChangelogReader`, and
 * iterates each before it opens the next; whoever only wants the lineage does not iterate. All snapshots are uploaded by
 * `saveCheckpointToDfs`; one for which it throws does not count as uploaded, and maintenance goes on.
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
  extends RocksDBFileManager(dfsRootDir, localTempDir, hadoopConf, codecName, loggingId, storeConf,
    fileChecksumEnabled, fileChecksumThreadPoolSize) {

  @volatile private var binding: Option[BinnedFileManager.Binding] = None

  def bind(to: BinnedFileManager.Binding): Unit = binding = Some(to)

  override def getChangelogReader(version: Long, checkpointUniqueId: Option[String]): StateStoreChangelogReader = {
    val changes = super.getChangelogReader(version, checkpointUniqueId)
    binding.flatMap(_.switchBefore(version)) match {
      case None => changes
      case Some(switch) =>
        val name = checkpointUniqueId.map(id => s"${version}_$id").getOrElse(version.toString)
        new SwitchThenChanges(changes, switch, CheckpointFileManager.create(new Path(dfsRootDir), hadoopConf),
          new Path(dfsRootDir, s"$name.changelog"), codec)
    }
  }

  override def deleteOldVersions(
      numVersionsToRetain: Int, maxVersionsToDeletePerMaintenance: Int, minVersionsToDelete: Long): Unit = {
    val retained = binding.flatMap(_.oldestNeededVersion()) match {
      case None => numVersionsToRetain
      case Some(version) =>
        // Spark keeps the newest snapshot that is this many versions old.
        math.max(numVersionsToRetain.toLong, getLatestSnapshotVersion() - version + 1).toInt
    }
    super.deleteOldVersions(retained, maxVersionsToDeletePerMaintenance, minVersionsToDelete)
  }

  override def saveCheckpointToDfs(
      checkpointDir: File,
      version: Long,
      numKeys: Long,
      numInternalKeys: Long,
      fileMapping: Map[String, RocksDBSnapshotFile],
      columnFamilyMapping: Option[Map[String, ColumnFamilyInfo]],
      maxColumnFamilyId: Option[Short],
      checkpointUniqueId: Option[String],
      verifyNonEmptyFilesInZip: Boolean): Unit = {
    requireOwned(version)
    Faults.at("snapshot.upload", binding.fold(-1)(_.partition))
    super.saveCheckpointToDfs(checkpointDir, version, numKeys, numInternalKeys, fileMapping, columnFamilyMapping,
      maxColumnFamilyId, checkpointUniqueId, verifyNonEmptyFilesInZip)
    // An upload takes its time, and the next run deletes what is there when it begins.
    try requireOwned(version) catch {
      case e: BinshiftException =>
        val name = checkpointUniqueId.map(id => s"${version}_$id").getOrElse(version.toString)
        CheckpointFileManager.create(new Path(dfsRootDir), hadoopConf).delete(new Path(dfsRootDir, s"$name.zip"))
        throw e
    }
  }

  private def requireOwned(version: Long): Unit = if (binding.exists(_.isDisowned(version))) {
    throw BinshiftException.migration(
      s"the snapshot of version $version in $dfsRootDir is of a run that has ended, and the query has gone on from an " +
        "earlier version since; it is not kept")
  }

  private def codec: CompressionCodec = CompressionCodec.createCodec(ProcessConf(), codecName)
}

private[binshift] object BinnedFileManager {
  /** What the database tells its file manager. */
  trait Binding {
    /** The switch that the changelog of `version` presumes, to be applied before its records. */
    def switchBefore(version: Long): Option[() => Unit]

    /** The oldest version that another partition's recovery still reads; called by maintenance threads. */
    def oldestNeededVersion(): Option[Long]

    def partition: Int

    /** Whether a later run of the query makes `version` anew; called by tasks and maintenance threads. */
    def isDisowned(version: Long): Boolean
  }
}

/** The records of a changelog, before the first of which `switch` is applied. */
private final class SwitchThenChanges(
    changes: StateStoreChangelogReader,
    switch: () => Unit,
    fm: CheckpointFileManager,
    file: Path,
    codec: CompressionCodec)
  extends StateStoreChangelogReader(fm, file, codec) {

  private var isSwitched = false

  override lazy val lineage: Array[LineageItem] = changes.lineage

  override def version: Short = changes.version

  override def getNext(): (RecordType.Value, Array[Byte], Array[Byte]) = {
    if (!isSwitched) {
      isSwitched = true
      switch()
    }
    if (changes.hasNext) changes.next() else {
      finished = true
      null
    }
  }

  override protected def close(): Unit = {
    changes.closeIfNeeded()
    super.close()
  }
}
