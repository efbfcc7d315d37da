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
 * Keeps Spark's offline repartition away from checkpoints of binshift.
 *
 * Spark's tool first logs an epoch with the new number of partitions, and only then finds that it can't read the provider's state.
 * After that, the query wouldn't start any more. So in sessions with the jar, the tool is refused before it begins. In a session
 * without the jar it leaves an epoch without data or state, which is removed when the query starts.
 */
private[binshift] object OfflineRepartition extends Logging {

  /**
   * Makes the session's tool refuse checkpoints of binshift.
   *
   * Relies on Spark: the session's state creates the tool on first use and keeps it in a private field. There is no hook to replace
   * it.
   */
  def guard(session: SparkSession): Unit = session.sessionState.streamingCheckpointManager match {
    case _: GuardedCheckpointManager =>
    case _ => Manager.setVolatile(session.sessionState, new GuardedCheckpointManager(session))
  }

  /**
   * Removes the epoch of a repartition that was cut short. Called before Spark reads the log to start.
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
      // A switch whose entry is lost must not be mistaken for a repartition.
      if !SparkInternals.entryName(offsets).exists(_.epoch == last) && !isSwitch(query, last, n.toInt)
    } yield last
    abandoned.foreach { epoch =>
      // Another run may have logged more since, so this removes only the epoch that it has looked at.
      SparkInternals.unlog(query, epoch)
      logWarning(s"query ${query.id}: epoch $epoch was logged by Spark's offline repartition, which cannot convert " +
        "state of binshift; the entry is removed, and the query goes on as it was")
    }
    abandoned.isDefined
  }

  /** Lets a query start although its last epoch changed the number of partitions. */
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
