package org.apache.spark.sql.binshift.stock

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path

import org.apache.spark.sql.binshift.internals.{SparkInternals, StreamLogs}
import org.apache.spark.sql.binshift.internals.StreamLogs.{Commit, Offsets}
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.datasources.v2.state.metadata.StateMetadataPartitionReader
import org.apache.spark.sql.execution.streaming.state.binshift.BinshiftException
import org.apache.spark.sql.execution.streaming.state.binshift.checkpoint.{ChangedKeys, CheckpointIds, ControlDir, Layout, LoggedEpochs, NamedEntry, Storage}
import org.apache.spark.sql.execution.streaming.state.binshift.conversion.StoreForm
import org.apache.spark.sql.execution.streaming.state.binshift.routing.{RoutingEntry, RoutingLog, RoutingTable}
import org.apache.spark.sql.execution.streaming.runtime.StreamMetadata
import org.apache.spark.sql.execution.streaming.state.{OperatorStateMetadata, StateStoreConf}
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.util.SerializableConfiguration

/**
 * The checkpoint of a stopped query, as of its last committed epoch. An offline conversion reads from it. It is read on creation,
 * and never changed.
 *
 * Relies on Spark: the logs and the metadata of operators can be read without the query.
 */
private[binshift] final class StoredCheckpoint(val root: Path, session: SparkSession) {
  val hadoopConf: Configuration = session.sessionState.newHadoopConf()
  val stateRoot: String = new Path(root, "state").toString
  private lazy val offsetLog = StreamLogs.offsets(session, root, readOnly = true)
  private lazy val commitLog = StreamLogs.commits(session, root)

  /** The identity of the query. */
  val id: String = StreamMetadata.read(new Path(root, "metadata"), hadoopConf).map(_.id).getOrElse(
    throw BinshiftException("NOT_A_CHECKPOINT", "checkpoint" -> root).configuration(
      s"$root is not the checkpoint of a streaming query: it has no file 'metadata'; give the directory that is the " +
        "query's checkpointLocation"))

  /** The last committed epoch. */
  val epoch: Long = commitLog.getLatestBatchId().getOrElse(
    throw BinshiftException("NOTHING_TO_CONVERT", "checkpoint" -> root).configuration(
      s"$root has no committed epoch, so there is no state to convert; start the query with a new checkpoint"))

  val commit: Commit = commitLog.get(epoch).get

  /** The entries that a restart reads: the last committed epoch, the one before it, and those that are not committed. */
  val offsets: Seq[(Long, Offsets)] =
    (math.max(0, epoch - 1) to math.max(epoch, offsetLog.getLatestBatchId().getOrElse(epoch)))
      .flatMap(e => offsetLog.get(e).map(e -> _))

  /** The newest epoch, if another one was logged or committed since the checkpoint was read. */
  def goneOnTo: Option[Long] = {
    val newest = Seq(offsetLog.getLatestBatchId(), commitLog.getLatestBatchId()).flatten
    Option.when(newest != Seq(offsets.last._1, epoch))(newest.max)
  }

  private val logged: Offsets = offsets.toMap.getOrElse(epoch,
    throw BinshiftException("CHECKPOINT_DAMAGED", "checkpoint" -> root).configuration(
      s"$root/offsets has no entry of the committed epoch $epoch; restore it from a copy of the checkpoint"))

  val partitions: Int = loggedConf(SQLConf.SHUFFLE_PARTITIONS.key).toInt

  val provider: String = loggedConf(SQLConf.STATE_STORE_PROVIDER_CLASS.key)

  /** True if keys are placed as a takeover requires. */
  val isPlacedByKey: Boolean = TakeoverEpochs.isPlacedByKey(logged)

  private val binned: Option[Layout] = if (SparkInternals.isBinshiftProvider(provider)) Layout.read(controlDir) else None

  /** Operators whose state can only be found in its partition, because keys have changed. */
  val changedKeys: Seq[ChangedKeys] = if (binned.isEmpty) Nil else ChangedKeys.read(controlDir)

  /** The layout, if the state is binned at the last committed epoch. State that has to stay in its partition counts as plain. */
  val layout: Option[Layout] = binned.map(l =>
    l.copy(operators = l.operators.map {
      case (id, o) if changedKeys.exists(_.operator == id) => id -> o.copy(storage = Storage.Plain)
      case other => other
    }))

  /** True if rows go where Spark's hash puts them. */
  def isTableOfSpark: Boolean = layout.forall(l =>
    entryInForce.exists(_.table == RoutingTable.initial(l.bins, partitions)))

  /** If the entry in force is lost, bins would be looked for at former owners. Only the name in the log shows that it is missing. */
  if (layout.nonEmpty) requireEntryInForce()

  val operators: Seq[OperatorStateMetadata] = new StateMetadataPartitionReader(
    root.toString, new SerializableConfiguration(hadoopConf), epoch).allOperatorStateMetadata.toSeq

  val stores: Seq[StoreForm] = operators.flatMap(StoreForm.of(stateRoot, _, hadoopConf))

  /** Under checkpoint format 2, the id of each partition of a store. */
  def checkpointId(store: StoreForm, partition: Int): Option[String] =
    commit.stateUniqueIds.flatMap(_.get(store.operatorId)).map(_(partition)(CheckpointIds.position(store.storeName)))

  /** The settings with which the query keeps its state, except for the provider. */
  def conf(provider: String): StateStoreConf = {
    val conf = session.sessionState.conf.clone()
    StreamLogs.setSessionConf(logged, conf)
    conf.setConf(SQLConf.STATE_STORE_PROVIDER_CLASS, provider)
    conf.setConf(SQLConf.STATE_STORE_CHECKPOINT_FORMAT_VERSION, if (commit.stateUniqueIds.isDefined) 2 else 1)
    new StateStoreConf(conf)
  }

  /** An entry from which the one in force can be found, if the logs or the claims name one. */
  private lazy val named: Option[NamedEntry] =
    LoggedEpochs.read(controlDir).near(epoch, layout.flatMap(_.takenOverAt).getOrElse(0L), log.unnamed(_).isDefined)

  private lazy val entryInForce: Option[RoutingEntry] =
    named.fold(log.names.filter(_.epoch <= epoch).lastOption)(n => Some(n.entry)).flatMap(log.read)
      .flatMap(log.inForce(_, epoch))

  private lazy val log = new RoutingLog(controlDir)

  private def requireEntryInForce(): Unit = {
    for (n <- named if entryInForce.isEmpty)
      throw BinshiftException("ROUTING_LOG_DAMAGED", "epoch" -> n.entry.epoch).configuration(
        s"epoch ${n.at} was run with the routing table of epoch ${n.entry.epoch} (${n.entry.render}), which is not in " +
          s"${controlDir.path}/routing; restore it from a copy, or start the query once")
    entryInForce.map(_.table.partitions).filter(_ != partitions).foreach { n =>
      throw BinshiftException("ROUTING_LOG_DAMAGED", "epoch" -> epoch).configuration(
        s"epoch $epoch was run with $partitions partitions, but its routing table in ${controlDir.path}/routing has $n; restore it " +
          "from a copy")
    }
  }

  private def controlDir: ControlDir = ControlDir.of(root, hadoopConf)

  private def loggedConf(key: String): String = SparkInternals.loggedConf(logged, key).getOrElse(
    throw BinshiftException("CHECKPOINT_TOO_OLD", "checkpoint" -> root).configuration(
      s"$root/offsets/$epoch does not have the setting $key, which old versions of Spark did not log; let the query " +
        "run an epoch with Spark 4.3 first, and then convert it"))
}
