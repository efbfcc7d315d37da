package org.apache.spark.sql.binshift.stock

import java.lang.invoke.MethodHandles

import org.apache.hadoop.fs.Path

import org.apache.spark.internal.Logging
import org.apache.spark.sql.binshift.internals.{CommittedEpoch, SparkInternals, StreamLogs}
import org.apache.spark.sql.binshift.internals.StreamLogs.Offsets
import org.apache.spark.sql.classic.{SparkSession, StreamingCheckpointManager}
import org.apache.spark.sql.execution.streaming.state.binshift.BinshiftException
import org.apache.spark.sql.execution.streaming.state.binshift.routing.RoutingLog
import org.apache.spark.sql.execution.streaming.runtime.StreamExecution
import org.apache.spark.sql.internal.{SQLConf, SessionState}

/**
 * Spark's offline repartition and checkpoints of binshift.
 *
 * Spark's tool first logs an epoch with the new number of partitions, and only then finds that it
 * cannot read the provider's state. The query would not start any more. So it is refused before it
 * begins, in sessions that have the jar; and what it has left from a session that had not, an epoch
 * without data or state, is taken away when the query starts.
 */
private[binshift] object OfflineRepartition extends Logging {

  /**
   * Has the session's tool refuse checkpoints of binshift.
   *
   * Relies on Spark: the session's state makes the tool when it is first asked for, and keeps it in a
   * private field; there is no hook to give it another one.
   */
  def guard(session: SparkSession): Unit = session.sessionState.streamingCheckpointManager match {
    case _: GuardedCheckpointManager =>
    case _ => Manager.setVolatile(session.sessionState, new GuardedCheckpointManager(session))
  }

  /**
   * Takes away the epoch of a repartition that was cut short. Called before the log is read to start.
   *
   * @param latest the newest entry of the log of offsets
   */
  def undo(query: StreamExecution, latest: Option[(Long, Offsets)]): Boolean = {
    val log = query.offsetLog
    val committed = CommittedEpoch.of(query)
    val abandoned = for {
      (last, offsets) <- latest if last > committed && last > 0 && isBinshift(offsets)
      n <- SparkInternals.loggedConf(offsets, SQLConf.SHUFFLE_PARTITIONS.key)
      before <- log.get(last - 1).flatMap(SparkInternals.loggedConf(_, SQLConf.SHUFFLE_PARTITIONS.key)) if n != before
      // The entry of a switch may be lost, which is not to be taken for a repartition.
      if !SparkInternals.entryName(offsets).exists(_.epoch == last) && !isSwitch(query, last, n.toInt)
    } yield last
    abandoned.foreach { epoch =>
      // Another run may have logged more since: nothing but what was looked at goes.
      SparkInternals.unlog(query, epoch)
      logWarning(s"query ${query.id}: epoch $epoch was logged by Spark's offline repartition, which cannot convert " +
        "state of binshift; the entry is removed, and the query goes on as it was")
    }
    abandoned.isDefined
  }

  /** Has a query start whose last epoch changed the number of partitions. */
  def letStart(query: StreamExecution): Unit =
    query.sparkSessionForStream.conf.set(SQLConf.STREAMING_CHECK_UNFINISHED_REPARTITION_ON_RESTART.key, "false")

  private def isSwitch(query: StreamExecution, epoch: Long, n: Int): Boolean =
    new RoutingLog(SparkInternals.controlDir(query)).allOf(epoch).exists(_.table.partitions == n)

  private[binshift] def isBinshift(offsets: Offsets): Boolean =
    SparkInternals.providerOf(offsets).exists(SparkInternals.isBinshiftProvider)

  private lazy val Manager = MethodHandles.privateLookupIn(classOf[SessionState], MethodHandles.lookup())
    .findVarHandle(classOf[SessionState], "streamingCheckpointManager", classOf[StreamingCheckpointManager])
}

private[binshift] final class GuardedCheckpointManager(session: SparkSession)
  extends StreamingCheckpointManager(session, session.sessionState.conf) {

  override def repartition(checkpointLocation: String, numPartitions: Int, enforceExactlyOnceSink: Boolean): Unit = {
    val offsets = Option(checkpointLocation).filter(_.nonEmpty).flatMap { location =>
      StreamLogs.offsets(session, new Path(location), readOnly = true).getLatest()
    }
    if (offsets.exists(o => OfflineRepartition.isBinshift(o._2))) throw BinshiftException("OFFLINE_REPARTITION").configuration(
      s"$checkpointLocation is a checkpoint of binshift, which Spark's offline repartition cannot convert; its " +
        s"partitions change while the query runs: controller.rescale($numPartitions) or 'binshift rescale'; or give it " +
        s"back to Spark's provider: binshift convert $checkpointLocation --to rocksdb --partitions $numPartitions")
    super.repartition(checkpointLocation, numPartitions, enforceExactlyOnceSink)
  }
}
