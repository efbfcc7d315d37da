package org.apache.spark.sql.binshift.internals

import org.apache.hadoop.fs.Path

import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.streaming.checkpointing._
import org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution
import org.apache.spark.sql.execution.streaming.state.binshift.BinshiftException
import org.apache.spark.sql.internal.SQLConf

/** The logs of a query since Spark 4.2, whose entries have two forms. */
private[binshift] object StreamLogs {
  /** An entry of the log of offsets. */
  type Offsets = OffsetSeqBase

  /** An entry of the log of commits. */
  type Commit = CommitMetadataBase

  def offsets(session: SparkSession, root: Path, readOnly: Boolean): OffsetSeqLog =
    new OffsetSeqLog(session, new Path(root, "offsets").toString, readOnly)

  /** The log of commits, for reading only. */
  def commits(session: SparkSession, root: Path): CommitLog = new CommitLog(session, new Path(root, "commits").toString, true)

  /** Adds a commit, and returns whether that epoch had none. */
  def addCommit(session: SparkSession, root: Path, epoch: Long, commit: Commit): Boolean =
    new CommitLog(session, new Path(root, "commits").toString, false).add(epoch, commit)

  def confOf(offsets: Offsets): Option[Map[String, String]] = offsets.metadataOpt.map(_.conf)

  def timestampMsOf(offsets: Offsets): Option[Long] = offsets.metadataOpt.map(_.batchTimestampMs)

  /** The time in the log at which the batch that is being planned was logged; meaningless if batches are logged when they end. */
  def plannedAtMs(query: MicroBatchExecution): Long = query.getLatestExecutionContext().offsetSeqMetadata.batchTimestampMs

  /** Applies the settings of an entry to a session. */
  def setSessionConf(offsets: Offsets, conf: SQLConf): Unit =
    OffsetSeqMetadata.setSessionConf(offsets.metadataOpt.get, conf)

  /** A copy with another setting. */
  def withConf(offsets: Offsets, conf: (String, String)): Offsets = offsets match {
    case o: OffsetSeq => o.copy(metadataOpt = o.metadataOpt.map(withConf(_, conf).asInstanceOf[OffsetSeqMetadata]))
    case o: OffsetMap => o.copy(metadata = withConf(o.metadata, conf).asInstanceOf[OffsetSeqMetadataV2])
    case other => throw unknownMetadata(other)
  }

  /** A copy with other checkpoint ids of state. */
  def withStateIds(commit: Commit, ids: Map[Long, Array[Array[String]]]): Commit = commit.withStateUniqueIds(Some(ids))

  /** Makes Spark log the batch after the one being planned with another setting; see `SparkInternals.setNextPartitions`. */
  def setNextConf(query: MicroBatchExecution, conf: (String, String)): Unit = {
    val context = query.getLatestExecutionContext()
    context.offsetSeqMetadata = withConf(context.offsetSeqMetadata, conf)
  }

  /** A copy of the metadata of an entry, with another setting. */
  def withConf(metadata: OffsetSeqMetadataBase, conf: (String, String)): OffsetSeqMetadataBase =
    metadata match {
      case m: OffsetSeqMetadata => m.copy(conf = m.conf + conf)
      case m: OffsetSeqMetadataV2 => m.copy(conf = m.conf + conf)
      case other => throw unknownMetadata(other)
    }

  private def unknownMetadata(found: AnyRef): BinshiftException = BinshiftException.unsupportedVersion(
    s"an offset log with ${found.getClass.getName} is unknown to this binshift; use the binshift for your Spark version")
}
