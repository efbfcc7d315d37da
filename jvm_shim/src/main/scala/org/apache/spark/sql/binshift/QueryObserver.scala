package org.apache.spark.sql.binshift

import java.util.concurrent.{TimeUnit, TimeoutException}
import java.util.concurrent.atomic.AtomicBoolean

import org.apache.spark.internal.Logging
import org.apache.spark.sql.binshift.internals.{LoggedBatch, SparkInternals}
import org.apache.spark.sql.binshift.migration.StepAtStart
import org.apache.spark.sql.binshift.query.{CheckpointAtStart, EndingRuns, QueryStarts}
import org.apache.spark.sql.binshift.realtime.RealTimeMode
import org.apache.spark.sql.binshift.stock.{OfflineRepartition, TakeoverEpochs}
import org.apache.spark.sql.binshift.ui.Telemetry
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.streaming.runtime.StreamExecution
import org.apache.spark.sql.execution.streaming.state.binshift.routing.RoutingLog
import org.apache.spark.sql.internal.SharedState
import org.apache.spark.sql.streaming.StreamingQueryListener
import org.apache.spark.sql.streaming.StreamingQueryListener._

/**
 * Looks at each query before it begins: whether it takes over state of Spark's own provider (see [[TakeoverEpochs]]), whether its
 * last run ended in the middle of a switch, and how far that run had got.
 *
 * If the last run ended in the middle of an epoch at which the number of partitions changes, Spark takes the epoch for an offline
 * repartition that was cut short, and refuses to start. But if the routing log has an entry for the epoch, with the number of
 * partitions that was logged, then it is a step of a migration, and it is right to run it again. So this class turns Spark's check
 * off, for that one query only.
 *
 * Relies on Spark: `onQueryStarted` is called on the stream's thread, before the offset log is read, when the query is among the
 * active ones already. The context keeps the listeners of each session for as long as it lives, including those of sessions that
 * are cloned for a run of a query. So this class must not hold a session.
 */
private[binshift] final class QueryObserver(shared: SharedState) extends StreamingQueryListener {
  override def onQueryStarted(event: QueryStartedEvent): Unit =
    Option(shared.activeStreamingQueries.get(event.id)).filter(_.runId == event.runId)
      .foreach { query =>
        QueryStarts.saw(event.runId)
        CheckpointAtStart.watch(query)
        // Nothing in a half copy may change, and the query is about to be refused.
        if (!SparkInternals.controlDir(query).isUnfinishedCopy) begin(query)
      }

  private def begin(query: StreamExecution): Unit = {
    RealTimeMode.begin(query)
    val found = query.offsetLog.getLatest()
    val isUndone = OfflineRepartition.undo(query, found)
    val latest = if (isUndone) query.offsetLog.getLatest() else found
    val last = latest.flatMap(SparkInternals.loggedBatch)
    last.foreach(QueryStarts.note(query.runId, _))
    val isStep = latest.exists { case (_, offsets) => last.exists(StepAtStart.take(query, _, offsets)) }
    if (isUndone || isStep || last.exists(endedInSwitch(query, _))) OfflineRepartition.letStart(query)
    TakeoverEpochs.observe(query, latest)
  }

  private def endedInSwitch(query: StreamExecution, logged: LoggedBatch): Boolean =
    logged.providerClass.exists(SparkInternals.isBinshiftProvider) && (logged.routing.exists(_.epoch == logged.epoch) ||
      new RoutingLog(SparkInternals.controlDir(query)).allOf(logged.epoch)
        .exists(e => logged.partitions.contains(e.table.partitions)))

  override def onQueryProgress(event: QueryProgressEvent): Unit = Telemetry.progressed(event.progress)
  override def onQueryTerminated(event: QueryTerminatedEvent): Unit = {
    Telemetry.close(event.runId)
    QueryObserver.awaitEnd(event)
    TakeoverEpochs.forget(event.runId)
    QueryStarts.forget(event.runId)
  }
}

private[binshift] object QueryObserver extends Logging {
  private val MaxEndMs = 5000L

  /**
   * Waits for what is written at the end of a run, because the next run may need it. The listeners of all queries share this
   * thread, so it doesn't wait for a file system that doesn't answer.
   */
  private def awaitEnd(event: QueryTerminatedEvent): Unit =
    try EndingRuns.end(event.runId).get(MaxEndMs, TimeUnit.MILLISECONDS)
    catch {
      case _: TimeoutException => logWarning(s"query ${event.id}: the end of run ${event.runId} could not be recorded within " +
          s"$MaxEndMs ms, because its checkpoint does not answer; the next start takes longer, because it searches for state of " +
          "lost epochs")
    }

  /** Observes all queries that the session starts from now on. A second call does nothing. */
  def register(session: SparkSession): Unit = session.streams.synchronized {
    if (!session.streams.listListeners().exists(_.isInstanceOf[QueryObserver])) {
      session.streams.addListener(new QueryObserver(session.sharedState))
    }
  }
}

/**
 * Registers [[QueryObserver]] in a session, the first time that the session analyses a plan of a stream. An extension has no other
 * hook that runs once a session is usable and before it can start a query.
 *
 * It waits for a plan of a stream, rather than for any plan. Relies on Spark: the context keeps what a session's listeners are
 * attached to for good, even when the session is gone, and creates it on first use.
 */
private[binshift] final case class RegisterQueryObserver(session: SparkSession) extends Rule[LogicalPlan] {
  private val guarded = new AtomicBoolean(false)
  private val registered = new AtomicBoolean(false)

  override def apply(plan: LogicalPlan): LogicalPlan = {
    if (guarded.compareAndSet(false, true)) OfflineRepartition.guard(session)
    if (plan.isStreaming && registered.compareAndSet(false, true)) QueryObserver.register(session)
    plan
  }
}
