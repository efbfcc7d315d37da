package org.apache.spark.sql.binshift

import org.apache.spark.sql.binshift.internals.SparkInternals
import org.apache.spark.sql.binshift.query.{QueryRouters, QueryStarts}
import org.apache.spark.sql.binshift.realtime.RealTimeMode
import org.apache.spark.sql.binshift.routing._
import org.apache.spark.sql.binshift.statistics.QueryStatistics
import org.apache.spark.sql.binshift.stock.TakeoverEpochs
import org.apache.spark.sql.binshift.ui.Telemetry
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.SparkPlan
import org.apache.spark.sql.execution.streaming.operators.stateful.StateStoreWriter
import org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution
import org.apache.spark.sql.execution.streaming.state.binshift.BinshiftConf
import org.apache.spark.sql.execution.streaming.state.binshift.checkpoint.{Layout, Storage}
import org.apache.spark.sql.internal.SQLConf

/**
 * Routes the micro-batches of queries that use binshift's provider, and returns every other plan unchanged.
 *
 * Spark's planner calls it on the stream's thread, once per batch. It is also called for plans that are no batch of a running query
 * (`explain` of a streaming DataFrame, subqueries). Those belong to no active query, or have no stateful operator.
 */
private[binshift] final case class RoutingRule(session: SparkSession) extends Rule[SparkPlan] {

  override def apply(plan: SparkPlan): SparkPlan = {
    val operators = StatefulOperators.writers(plan)
    def provider = session.sessionState.conf.getConf(SQLConf.STATE_STORE_PROVIDER_CLASS)
    def isTakenOver = TakeoverEpochs.of(operators.head.getStateInfo.queryRunId).isDefined
    if (operators.isEmpty || !SparkInternals.isBinshiftProvider(provider) && !isTakenOver) plan
    else SparkInternals.activeQuery(session, operators.head.getStateInfo.queryRunId) match {
      case None => plan
      case Some(query) =>
        if (!QueryStarts.isSeen(query.runId)) throw QueryStarts.unseen(query)
        TakeoverEpochs.begin(query, operators.head.getStateInfo.storeVersion)(route(plan, operators, query))
    }
  }

  private def route(plan: SparkPlan, operators: Seq[StateStoreWriter], query: MicroBatchExecution): SparkPlan = {
    val isRealTime = RealTimeMode.isOf(query)
    val info = operators.head.getStateInfo
    SparkInternals.requireSupportedVersion()
    if (isRealTime) RealTimeMode.requireAllowed(query, plan)
    HashSources.requireThatRowsFollow(plan, operators)
    if (TakeoverEpochs.of(query.runId).exists(_.epoch == info.storeVersion))
      new BinsSetting(session).layoutOf(operators, info.numPartitions)
    val router = QueryRouters.of(query)
    val epoch = router.enter(session, operators)
    session.conf.set(BinshiftConf.RoutedLayout, Layout.render(epoch.layout))
    session.conf.set(BinshiftConf.RoutedRun, query.runId.toString)
    session.sparkContext.setLocalProperty(BinshiftConf.RoutingHint, epoch.hint.render)
    session.sparkContext.setLocalProperty(
      BinshiftConf.StepHint, s"${epoch.hint.runId}:${epoch.hint.epoch}:${epoch.isStepNext}")
    session.sparkContext.setLocalProperty(BinshiftConf.ShippingHint, epoch.shippingHint)
    session.sparkContext.setLocalProperty(
      BinshiftConf.StatisticsHint, QueryStatistics.of(query).announce(epoch))
    Telemetry.show(query)
    val binned =
      epoch.layout.operators.collect { case (id, o) if o.storage == Storage.Binned => id }.toSet
    val routed = new ExchangeRouting(
      epoch.table, epoch.arriving, epoch.onTheWay, binned, isOrdered = !isRealTime).apply(plan)
    router.protocol.note(plan, binned)
    TransformWithStateProvider.accept(NewPartitionIds.assign(query, routed, binned))
  }
}
