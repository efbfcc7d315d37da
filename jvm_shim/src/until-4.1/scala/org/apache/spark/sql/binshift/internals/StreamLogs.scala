package org.apache.spark.sql.binshift.internals

import scala.io.Source

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

  /** To be read, whatever checkpoint format the session has: Spark 4.1 reads entries of that of the session only. */
  def commits(session: SparkSession, root: Path): CommitLog = {
    val directory = new Path(root, "commits")
    val files = CheckpointFileManager.create(directory, session.sessionState.newHadoopConf())
    val newest = Option.when(files.exists(directory))(files.list(directory).toSeq).toSeq.flatten
      .filter(_.getPath.getName.forall(_.isDigit)).maxByOption(_.getPath.getName.toLong)
    val format = newest.map { file =>
      val in = files.open(file.getPath)
      try Source.fromInputStream(in, "UTF-8").getLines().next().trim.stripPrefix("v")
      finally in.close()
    }
    log(session, directory, format.getOrElse("1"))
  }

  /** Whether there was none of that epoch. */
  def addCommit(session: SparkSession, root: Path, epoch: Long, commit: Commit): Boolean =
    log(session, new Path(root, "commits"), if (commit.stateUniqueIds.isDefined) "2" else "1").add(epoch, commit)

  private def log(session: SparkSession, directory: Path, format: String): CommitLog = {
    val own = session.newSession()
    own.conf.set(SQLConf.STATE_STORE_CHECKPOINT_FORMAT_VERSION.key, format)
    new CommitLog(own, directory.toString)
  }

  def confOf(offsets: Offsets): Option[Map[String, String]] = offsets.metadata.map(_.conf)

  def timestampMsOf(offsets: Offsets): Option[Long] = offsets.metadata.map(_.batchTimestampMs)

  /** When the batch that is being planned was logged, as the log has it, unless it is logged when it ends. */
  def plannedAtMs(query: MicroBatchExecution): Long = query.getLatestExecutionContext().offsetSeqMetadata.batchTimestampMs

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
