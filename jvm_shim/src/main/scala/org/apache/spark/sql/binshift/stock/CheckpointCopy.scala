package org.apache.spark.sql.binshift.stock

import java.util.UUID

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{FileStatus, FileSystem, FileUtil, Path}
import org.json4s.JsonDSL._

import org.apache.spark.sql.binshift.internals.StreamLogs
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager
import org.apache.spark.sql.execution.streaming.state.binshift.{BinshiftException, Faults}
import org.apache.spark.sql.execution.streaming.state.binshift.conversion.StoreForm
import org.apache.spark.sql.execution.streaming.runtime.StreamMetadata
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.internal.SQLConf

/**
 * Writes the checkpoint of a conversion, except for the state itself, which [[StateRewrite]] writes.
 *
 * The checkpoint is complete when its file `metadata` exists, which is written last and in one atomic step. No query starts from
 * an incomplete checkpoint, because the log of offsets is written before any state and names a version that doesn't exist yet.
 * (Without the log, Spark would begin with no state, and with sources that have seen all their data.) If a conversion didn't end,
 * a marker identifies what it left. The next conversion takes over the output and replaces that (see [[OutputClaim]]).
 */
private[binshift] final class CheckpointCopy(
    source: StoredCheckpoint, root: Path, provider: String, partitions: Int, session: SparkSession) {
  private val hadoopConf: Configuration = source.hadoopConf
  private val fs: FileSystem = root.getFileSystem(hadoopConf)
  private val sourceFs: FileSystem = source.root.getFileSystem(hadoopConf)
  private val metadata = new Path(root, "metadata")
  val claim: OutputClaim = OutputClaim(root.toString, UUID.randomUUID().toString)
  val stateRoot: String = new Path(root, "state").toString

  /** Refuses a directory that holds something else; changes nothing. */
  def requireFree(): Unit = if (fs.exists(root)) {
    val isUnfinished = OutputClaim.isThere(root, hadoopConf) && !fs.exists(metadata)
    if (!isUnfinished && fs.listStatus(root).nonEmpty) throw notEmpty
  }

  def begin(): Unit = {
    requireFree()
    // The marker exists for as long as anything else does. So whenever this ends, the next conversion may replace the rest.
    claim.take(("source" -> source.root.toString) ~ ("epoch" -> source.epoch), hadoopConf)
    if (fs.exists(metadata)) {
      // The other conversion has ended meanwhile.
      claim.end(hadoopConf)
      throw notEmpty
    }
    // The log of offsets is deleted last, because it keeps a query from starting with no state.
    val old = fs.listStatus(root).filterNot(_.getPath.getName.contains(OutputClaim.Marker))
    old.sortBy(_.getPath.getName == "offsets").foreach { file =>
      fs.delete(file.getPath, true)
      Faults.at("convert.clean")
    }
    // The other conversion may have ended since we looked for it. It fails, because this one now has the output.
    fs.delete(metadata, false)
    val offsetLog = StreamLogs.offsets(session, root, readOnly = false)
    source.offsets.foreach { case (epoch, entry) =>
      val isAdded = offsetLog.add(epoch,
        StreamLogs.withConf(StreamLogs.withConf(entry,
            SQLConf.STATE_STORE_PROVIDER_CLASS.key -> provider), SQLConf.SHUFFLE_PARTITIONS.key -> partitions.toString))
      if (!isAdded) throw claim.taken
    }
    copyOthers()
    source.operators.foreach(copyOperator)
  }

  /** @param ids checkpoint ids by operator, partition and store, under checkpoint format 2 */
  def finish(ids: Option[Map[Long, Array[Array[String]]]]): Unit = {
    val commit = ids.fold(source.commit)(StreamLogs.withStateIds(source.commit, _))
    claim.require(hadoopConf)
    if (!StreamLogs.addCommit(session, root, source.epoch, commit)) throw claim.taken
    claim.require(hadoopConf)
    StreamMetadata.write(StreamMetadata(source.id), metadata, hadoopConf)
    claim.requireNoOther(hadoopConf)
    claim.end(hadoopConf)
  }

  private def notEmpty: BinshiftException = BinshiftException("OUTPUT_NOT_EMPTY", "output" -> root).configuration(
    s"the output $root exists and is not empty; name a directory that does not exist")

  /** Copies the sources' own files, and anything else that exists. */
  private def copyOthers(): Unit = sourceFs.listStatus(source.root).toSeq
    .filterNot(f => CheckpointCopy.Rewritten(f.getPath.getName) || f.getPath.getName.startsWith("."))
    .foreach { file =>
      claim.require(hadoopConf)
      copy(file, root)
    }

  private def copyOperator(metadata: OperatorStateMetadata): Unit = {
    claim.require(hadoopConf)
    val id = metadata.operatorInfo.operatorId
    val from = new Path(source.stateRoot, id.toString)
    val to = new Path(stateRoot, id.toString)
    metadata match {
      case m: OperatorStateMetadataV1 =>
        // The schema of an operator without families is below its partition 0.
        m.stateStoreInfo.foreach { s =>
          def schema(state: String) = StateSchemaCompatibilityChecker.schemaFile(
            StateStoreId(state, id, StateStore.PARTITION_ID_TO_CHECK_SCHEMA, s.storeName).storeCheckpointLocation())
          copy(sourceFs.getFileStatus(schema(source.stateRoot)), schema(stateRoot).getParent)
        }
        val file = OperatorStateMetadataV1.metadataFilePath(to)
        val fm = CheckpointFileManager.create(file.getParent, hadoopConf)
        fm.mkdirs(file.getParent)
        OperatorStateMetadataUtils.writeMetadata(fm.createAtomic(file, overwriteIfPossible = true),
          m.copy(stateStoreInfo = m.stateStoreInfo.map(_.copy(numPartitions = partitions))), file)
      case m: OperatorStateMetadataV2 =>
        copy(sourceFs.getFileStatus(new Path(from, StoreForm.SchemaDir)), to)
        // The first epoch that can be asked for is the first in the log of offsets.
        OperatorStateMetadataWriter.createWriter(to, hadoopConf, m.version, Some(source.offsets.head._1)).write(
          m.copy(stateStoreInfo = m.stateStoreInfo.map(s =>
            s.copy(numPartitions = partitions,
              stateSchemaFilePaths = s.stateSchemaFilePaths.map(StoreForm.relocated(stateRoot, id, _))))))
      case other => throw BinshiftException.unsupportedVersion(
          s"operator $id has metadata of version ${other.version}, which is unknown to this binshift; use the " +
            "binshift for your Spark version")
    }
  }

  private def copy(what: FileStatus, into: Path): Unit = {
    fs.mkdirs(into)
    FileUtil.copy(sourceFs, what.getPath, fs, new Path(into, what.getPath.getName), false, hadoopConf)
  }
}

private object CheckpointCopy {
  /** Files that are written from scratch, or belong to binshift. */
  private val Rewritten = Set("offsets", "commits", "state", "metadata", "binshift", OutputClaim.Marker)
}
