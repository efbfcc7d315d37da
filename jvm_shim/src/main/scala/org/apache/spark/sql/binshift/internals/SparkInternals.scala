package org.apache.spark.sql.binshift.internals

import java.util.UUID

import scala.jdk.CollectionConverters._

import org.apache.hadoop.fs.Path

import org.apache.spark.{SPARK_VERSION, SparkContext}
import org.apache.spark.sql.binshift.internals.StreamLogs.Offsets
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.streaming.state.binshift.BinshiftException
import org.apache.spark.sql.execution.streaming.state.binshift.checkpoint.{ControlDir, EntryName, ReplacedFile}
import org.apache.spark.sql.execution.streaming.state.binshift.provider.BinnedStateStoreProvider
import org.apache.spark.sql.execution.streaming.operators.stateful.StateStoreWriter
import org.apache.spark.sql.execution.streaming.runtime.{MicroBatchExecution, StreamExecution}
import org.apache.spark.sql.execution.streaming.ProcessingTimeTrigger
import org.apache.spark.sql.execution.streaming.state.{OperatorStateMetadata, OperatorStateMetadataReader, OperatorStateMetadataUtils, OperatorStateMetadataV1, OperatorStateMetadataV2}
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.util.Utils

/**
 * The driver-side places where binshift reaches into Spark; docs/porting.md says what a port to another
 * version needs. Each method says what it relies on.
 */
private[binshift] object SparkInternals {
  val ChangelogKey = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"

  val UnloadKey = "spark.sql.streaming.stateStore.unloadOnCommit"

  /**
   * True if stores are closed at each commit. If so, copies for the next step are lost with them, and between epochs no partition is
   * on an executor.
   *
   * Relies on Spark: such stores do not report to the coordinator.
   */
  def unloadsStores(session: SparkSession): Boolean = session.sessionState.conf.getConfString(UnloadKey, "false").toBoolean

  def requireSupportedVersion(version: String = SPARK_VERSION): Unit =
    if (!version.startsWith(s"${SupportedSpark.Minor}.")) {
      throw BinshiftException("UNSUPPORTED_VERSION", "installed" -> version).unsupportedVersion(
        s"this jar of binshift works with Spark ${SupportedSpark.Minor}.x, not with $version; take the jar that " +
          s"binshift.jar_path() gives on your Spark, or install pyspark==${SupportedSpark.Minor}.*")
    }

  def isBinshiftProvider(className: String): Boolean =
    try {
      classOf[BinnedStateStoreProvider].isAssignableFrom(Utils.classForName(className))
    } catch {
      case _: ClassNotFoundException => false
    }

  /**
   * The running query of a plan. The plan's session is the query's clone, whose own list of active queries is empty. But the state
   * shared by all sessions lists the query under its query id.
   */
  def activeQuery(session: SparkSession, runId: UUID): Option[MicroBatchExecution] =
    session.sharedState.activeStreamingQueries.values.asScala.collectFirst {
      case m: MicroBatchExecution if m.runId == runId => m
    }

  /** Identifies this application, or rather this attempt of its driver, because executor ids mean nothing outside of it. */
  def applicationOf(context: SparkContext): String = s"${context.applicationId}@${context.startTime}"

  /**
   * The number of tasks that all live executors together can run at the same time.
   *
   * Relies on Spark: `SparkContext.maxNumConcurrentTasks` of the default resource profile, by which Spark checks barrier stages.
   */
  def taskSlots(context: SparkContext): Int =
    context.maxNumConcurrentTasks(context.resourceProfileManager.defaultResourceProfile)

  /** For how many epochs the query remembers its progress reports. */
  def reportsKept(query: StreamExecution): Int = query.sparkSession.sessionState.conf.streamingProgressRetention

  /** The interval of the query's trigger; 0 if it has none. */
  def triggerIntervalMs(query: StreamExecution): Long = query.trigger match {
    case t: ProcessingTimeTrigger => t.intervalMs
    case _ => 0L
  }

  /**
   * Milliseconds that the latest epochs of the query took.
   *
   * Relies on Spark: reports of triggers that found no data don't say how long their `addBatch` took.
   */
  def tookMs(query: StreamExecution): Map[Long, Long] = query.recentProgress.toSeq.filter(_.durationMs.containsKey("addBatch"))
    .map(p => p.batchId -> p.durationMs.asScala("triggerExecution").longValue).toMap

  /**
   * Makes the batch after the one being planned run with `n` state partitions.
   *
   * Relies on Spark: the context of the next batch copies `offsetSeqMetadata` from this one. Spark logs it with the next batch's
   * offsets, and plans stateful operators, exchanges and commit validation with it. Must be called on the stream's thread while a
   * batch is planned, because the metadata of that batch has been logged by then.
   */
  def setNextPartitions(query: MicroBatchExecution, n: Int): Unit =
    StreamLogs.setNextConf(query, SQLConf.SHUFFLE_PARTITIONS.key -> n.toString)

  /**
   * Corrects the number of an operator's rows in the report of `epoch`, which is running. May be called by any thread while the
   * jobs of the epoch run.
   *
   * Relies on Spark: it makes the report from the metrics of the plan's nodes, after the last job of the epoch. While tasks of a
   * plan run, the plan exists, so asking for it waits for nobody. The plan of a later epoch may be in the making, and isn't asked
   * for.
   *
   * @param stores how many stores `rows` is the sum of; nothing is changed unless these are all stores of the operator
   */
  def setStateRows(query: StreamExecution, epoch: Long, operator: Long, stores: Int, rows: Long): Unit = for {
    batch <- Option(query.lastExecution) if batch.currentBatchId == epoch
    op <- batch.executedPlan.collect {
      case op: StateStoreWriter if op.stateInfo.exists(i => i.operatorId == operator && i.storeVersion == epoch) => op
    }
    if op.stateStoreNames.size == stores
    metric <- op.metrics.get("numTotalStateRows")
  } metric.set(rows)

  /** binshift's directory in the query's checkpoint. */
  def controlDir(query: StreamExecution): ControlDir =
    ControlDir.of(new Path(query.resolvedCheckpointRoot), query.sparkSession.sessionState.newHadoopConf())

  /** True if the logs of the query keep their last entries in memory. They read the setting once, when the query starts. */
  def keepsLogs(query: StreamExecution): Boolean =
    query.sparkSessionForStream.sessionState.conf.getConf(SQLConf.STREAMING_METADATA_CACHE_ENABLED)

  /**
   * Makes a run that is about to start continue from `last`, whose entry is `offsets`, with another setting than was logged. The log on
   * disk isn't changed. Works only if the query [[keepsLogs]].
   *
   * Relies on Spark: the run reads the settings from the entry in memory.
   */
  def goOnWith(query: StreamExecution, last: Long, offsets: Offsets, setting: (String, String)): Unit =
    query.offsetLog.batchCache.put(last, StreamLogs.withConf(offsets, setting))

  /** Removes only `epoch` from the log of offsets. Relies on Spark: its entry is a file of this name. */
  def unlog(query: StreamExecution, epoch: Long): Unit = {
    val log = query.offsetLog
    CheckpointFileManager.create(log.metadataPath, query.sparkSession.sessionState.newHadoopConf())
      .delete(new Path(log.metadataPath, epoch.toString))
    log.batchCache.remove(epoch)
  }

  /** The newest batch of the offset log, with the provider and the state partitions it logged. */
  def lastLogged(query: StreamExecution): Option[LoggedBatch] = query.offsetLog.getLatest().flatMap(loggedBatch)

  def loggedBatch(entry: (Long, Offsets)): Option[LoggedBatch] = {
    val (epoch, offsets) = entry
    StreamLogs.confOf(offsets).map { _ =>
      LoggedBatch(epoch, providerOf(offsets),
        loggedConf(offsets, SQLConf.SHUFFLE_PARTITIONS.key).map(_.toInt), entryName(offsets))
    }
  }

  /** The state-store provider that a batch was logged with. */
  def providerOf(offsets: Offsets): Option[String] = loggedConf(offsets, SQLConf.STATE_STORE_PROVIDER_CLASS.key)

  /** A setting that Spark logged with a batch. */
  def loggedConf(offsets: Offsets, key: String): Option[String] = StreamLogs.confOf(offsets).flatMap(_.get(key))

  /**
   * True if another driver has logged `epoch`, which is one of the two newest epochs. It may have done so between the start of this
   * run and this run's first look at the log. Always false if the cache of logs is off.
   *
   * Relies on Spark: if its cache is on, a log keeps in memory what its own `add` has written.
   */
  def isOfAnother(query: StreamExecution, epoch: Long): Boolean = !query.offsetLog.batchCache.containsKey(epoch) &&
    keepsLogs(query) &&
    query.offsetLog.get(epoch).isDefined

  /** The time at which Spark logged an epoch. It distinguishes the epoch from another one that was logged in its place. */
  def loggedAtMs(offsets: Offsets): Option[Long] = StreamLogs.timestampMsOf(offsets)

  /** The routing entry in force at an epoch; not logged with the first epoch of a run. */
  def entryName(offsets: Offsets): Option[EntryName] = loggedConf(offsets, EntryName.Key).flatMap(EntryName.parse)

  /**
   * Refuses to run `epoch` if the logs have epochs after `logged`, or say that it is committed. Spark would only notice when it
   * logs the end of the epoch, after other files of it were written. Lists the logs on disk.
   */
  def requireNewest(query: StreamExecution, logged: Long, epoch: Long): Unit = {
    val begun = query.offsetLog.getLatestBatchId().filter(_ > logged).map(e => s"offsets/$e")
    val committed = query.commitLog.getLatestBatchId().filter(_ >= epoch).map(e => s"commits/$e")
    val later = begun.toSeq ++ committed
    if (later.nonEmpty) throw BinshiftException("ANOTHER_RUN", "checkpoint" -> query.resolvedCheckpointRoot).configuration(
      s"query ${query.id} begins with epoch $epoch, but ${query.resolvedCheckpointRoot} has ${later.mkString(" and ")}: " +
        "another run of the query is under way, or epochs were removed from offsets only; stop the other run, or delete " +
        "the entries of commits that are newer than the newest entry of offsets")
  }

  /**
   * Corrects the number of partitions in the operator's metadata. Spark writes the metadata only in the first batch of a run, and
   * the `state-metadata` source reads it. Version 1 is one file, which is replaced. Version 2 has a file for each batch at which
   * something changed.
   *
   * Relies on Spark: in real-time mode, it writes the metadata when the first batch of a run ends, unless a file exists.
   *
   * @param logged the newest epoch in the log of offsets, which is the epoch before in real-time mode. Version 2 isn't read
   *               beyond it.
   * @param isFirst whether this is the first epoch of a run
   */
  def updateOperatorMetadata(session: SparkSession, op: StateStoreWriter, logged: Long, isFirst: Boolean): Unit = {
    val info = op.getStateInfo
    val n = info.numPartitions
    val dir = new Path(info.checkpointLocation, info.operatorId.toString)
    val conf = session.sessionState.newHadoopConf()
    lazy val fm = CheckpointFileManager.create(dir, conf)
    // Spark's writer of version 2 keeps an existing file, which may be from an epoch that was wound back.
    def write(metadata: OperatorStateMetadata, file: Path): Unit = {
      fm.mkdirs(file.getParent)
      OperatorStateMetadataUtils.writeMetadata(ReplacedFile.create(fm, file), metadata, file)
    }
    val file =
      if (op.operatorStateMetadataVersion == 1) OperatorStateMetadataV1.metadataFilePath(dir)
      else OperatorStateMetadataV2.metadataFilePath(dir, info.storeVersion)
    val isThere = logged >= info.storeVersion || fm.exists(file)
    // An attempt that wasn't committed has left it.
    val isLeft = logged < info.storeVersion && op.operatorStateMetadataVersion != 1 && isThere
    // This run's code may have other state variables than that attempt, and Spark hasn't written them yet.
    val isSparks = isFirst && isLeft
    if (isSparks) fm.delete(file)
    val known =
      if (isSparks || logged < 0 || op.operatorStateMetadataVersion == 1 && !isThere) None
      else OperatorStateMetadataReader.createReader(dir, conf, op.operatorStateMetadataVersion, logged).read()
    known.foreach {
      case m: OperatorStateMetadataV1 if m.stateStoreInfo.exists(_.numPartitions != n) =>
        write(m.copy(stateStoreInfo = m.stateStoreInfo.map(_.copy(numPartitions = n))), file)
      case m: OperatorStateMetadataV2 if isLeft || m.stateStoreInfo.exists(_.numPartitions != n) =>
        write(m.copy(stateStoreInfo = m.stateStoreInfo.map(_.copy(numPartitions = n))), file)
      case _ =>
    }
  }
}

private[binshift] final case class LoggedBatch(
    epoch: Long, providerClass: Option[String], partitions: Option[Int], routing: Option[EntryName])
