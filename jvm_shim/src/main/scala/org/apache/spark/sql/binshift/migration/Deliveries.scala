package org.apache.spark.sql.binshift.migration

import org.apache.spark.sql.binshift.internals.SparkInternals
import org.apache.spark.sql.binshift.realtime.EpochProtocol
import org.apache.spark.sql.binshift.routing.{RunState, StatefulOperators}
import org.apache.spark.sql.binshift.statistics.QueryStatistics
import org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution
import org.apache.spark.sql.execution.streaming.state.binshift.routing.{Delivery, Move, RoutingTable}
import org.apache.spark.sql.execution.streaming.state.binshift.shipping.BackgroundConf

/** Chooses how bins come to their new owners at a step, and says what keeps them from coming in a better way. Any thread. */
private[binshift] final class Deliveries(query: MicroBatchExecution, run: RunState, protocol: EpochProtocol) {
  private val session = query.sparkSessionForStream
  val conf: BackgroundConf = BackgroundConf(session.sessionState.conf.getAllConfs)

  /** True if stores are closed at each commit, so that no partition stays on an executor. */
  def unloadsStores: Boolean = SparkInternals.unloadsStores(session)

  /** Copies end with a run, and a run that ends by itself may have too few epochs for any. */
  def isAhead(plan: MigrationPlan, isPrepared: Boolean): Boolean =
    isPrepared && !plan.isOnDemand && whyNotShippable.isEmpty && !StepAtStart.endsByItself(query)

  /** How the bins of step `index`, which fits the table, are delivered. */
  def of(plan: MigrationPlan, isPrepared: Boolean, index: Int, now: RoutingTable): Delivery =
    if (whyNotShippable.nonEmpty) Delivery.AtSwitch
    else if (plan.isOnDemand) Delivery.OnDemand
    else if (isAhead(plan, isPrepared)) Delivery.Ahead
    else {
      val moves = plan.steps(index).moves
      // A batch of real-time mode may take minutes.
      val splits = if (protocol.isRealTime || !isLarge(moves)) Map.empty[Int, Int] else Splits.of(now, moves)
      if (splits.isEmpty) Delivery.AtSwitch else Delivery.WholeFiles(splits)
    }

  /** True if so much moves that an epoch in which partitions are opened is worth it. */
  private def isLarge(moves: Seq[Move]): Boolean = QueryStatistics.of(query).snapshot().exists { statistics =>
    statistics.operators.exists(o => o.isSized && moves.map(m => o.bytes(m.bin)).sum >= conf.bytesToSplit)
  }

  /** The reason why bins are read from the checkpoint, and neither copied ahead of their step nor sent at it; `None` if they are sent. */
  private def whyNotShippable: Option[String] =
    if (!session.sessionState.conf.getConfString(SparkInternals.ChangelogKey, "false").toBoolean)
      Some(s"${SparkInternals.ChangelogKey} is false")
    else Option.when(unloadsStores)(s"${SparkInternals.UnloadKey} is true")

  /** Says why no bins are copied for `m`, although its options or its strategy ask for that. */
  def whyNotCopied(m: PlannedMigration): Option[String] =
    whyNotShippable.filter(_ => m.plan.steps.nonEmpty && (m.options.isPrepared || m.plan.isOnDemand)).map(why =>
      s"no bins are copied ahead, because $why; each step takes effect at once, and its epoch takes longer, because it reads the " +
        "bins from the checkpoint")

  /**
   * The reasons why new owners would wait for whole bins, rather than fetch single rows, if a plan is on demand. There are none
   * if all operators whose bins move look state up by the keys of their rows, and these keys are known before the rows are
   * processed.
   */
  def whyWholeBins: Seq[String] =
    if (run.now.epoch.isEmpty) Seq("this run has planned no epoch, so that its operators are not known")
    else if (protocol.isRealTime) Seq("the query is in real-time mode")
    else whyNotShippable.fold(run.now.binned.filterNot(StatefulOperators.looksUpByKey).map(op =>
        s"operator ${StatefulOperators.idOf(op)} (${op.shortName}) looks through its state in each epoch"))(Seq(_))
}
