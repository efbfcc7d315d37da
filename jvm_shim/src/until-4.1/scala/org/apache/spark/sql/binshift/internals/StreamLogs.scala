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

  /** @param readOnly ignored: in Spark 4.1, a log that is only read makes its directory as well */
  def offsets(session: SparkSession, root: Path, readOnly: Boolean): OffsetSeqLog =
    new OffsetSeqLog(session, new Path(root, "offsets").toString)

  /** The log of commits, for reading only. Works for any checkpoint format; Spark 4.1 itself only reads entries of the session's format. */
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

  /** Adds a commit, and returns whether that epoch had none. */
  def addCommit(session: SparkSession, root: Path, epoch: Long, commit: Commit): Boolean =
    log(session, new Path(root, "commits"), if (commit.stateUniqueIds.isDefined) "2" else "1").add(epoch, commit)

  private def log(session: SparkSession, directory: Path, format: String): CommitLog = {
    val own = session.newSession()
    own.conf.set(SQLConf.STATE_STORE_CHECKPOINT_FORMAT_VERSION.key, format)
    new CommitLog(own, directory.toString)
  }

  def confOf(offsets: Offsets): Option[Map[String, String]] = offsets.metadata.map(_.conf)

  def timestampMsOf(offsets: Offsets): Option[Long] = offsets.metadata.map(_.batchTimestampMs)

  /** The time in the log at which the batch that is being planned was logged; meaningless if batches are logged when they end. */
  def plannedAtMs(query: MicroBatchExecution): Long = query.getLatestExecutionContext().offsetSeqMetadata.batchTimestampMs

  /** Applies the settings of an entry to a session. */
  def setSessionConf(offsets: Offsets, conf: SQLConf): Unit = OffsetSeqMetadata.setSessionConf(offsets.metadata.get, conf)

  /** A copy with another setting. */
  def withConf(offsets: Offsets, conf: (String, String)): Offsets =
    offsets.copy(metadata = offsets.metadata.map(m => m.copy(conf = m.conf + conf)))

  /** A copy with other checkpoint ids of state. */
  def withStateIds(commit: Commit, ids: Map[Long, Array[Array[String]]]): Commit = commit.copy(stateUniqueIds = Some(ids))

  /** Makes Spark log the batch after the one being planned with another setting; see `SparkInternals.setNextPartitions`. */
  def setNextConf(query: MicroBatchExecution, conf: (String, String)): Unit = {
    val context = query.getLatestExecutionContext()
    val metadata = context.offsetSeqMetadata
    context.offsetSeqMetadata = metadata.copy(conf = metadata.conf + conf)
  }
}
