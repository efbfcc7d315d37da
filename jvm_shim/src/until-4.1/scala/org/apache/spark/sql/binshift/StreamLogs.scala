package org.apache.spark.sql.binshift

import org.apache.hadoop.fs.Path

import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.streaming.checkpointing._
import org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution
import org.apache.spark.sql.internal.SQLConf

/** The logs of a query in Spark 4.1. */
private[binshift] object StreamLogs {
  /** An entry of the log of offsets. */
  type Offsets = OffsetSeq

  /** An entry of the log of commits. */
  type Commit = CommitMetadata

  /** @param readOnly changes nothing: in Spark 4.1, a log that is only read makes its directory as well */
  def offsets(session: SparkSession, root: Path, readOnly: Boolean): OffsetSeqLog =
    new OffsetSeqLog(session, new Path(root, "offsets").toString)

  /** @param readOnly as that of `offsets` */
  def commits(session: SparkSession, root: Path, readOnly: Boolean): CommitLog =
    new CommitLog(session, new Path(root, "commits").toString)

  def confOf(offsets: Offsets): Option[Map[String, String]] = offsets.metadata.map(_.conf)

  def timestampMsOf(offsets: Offsets): Option[Long] = offsets.metadata.map(_.batchTimestampMs)

  /** Gives the settings of an entry to a session. */
  def setSessionConf(offsets: Offsets, conf: SQLConf): Unit = OffsetSeqMetadata.setSessionConf(offsets.metadata.get, conf)

  /** A copy with another setting. */
  def withConf(offsets: Offsets, conf: (String, String)): Offsets =
    offsets.copy(metadata = offsets.metadata.map(m => m.copy(conf = m.conf + conf)))

  /** A copy with other checkpoint ids of state. */
  def withStateIds(commit: Commit, ids: Map[Long, Array[Array[String]]]): Commit = commit.copy(stateUniqueIds = Some(ids))

  /** Has the batch after the one being planned logged with another setting; see `SparkInternals.setNextPartitions`. */
  def setNextConf(query: MicroBatchExecution, conf: (String, String)): Unit = {
    val context = query.getLatestExecutionContext()
    val metadata = context.offsetSeqMetadata
    context.offsetSeqMetadata = metadata.copy(conf = metadata.conf + conf)
  }
}
