package org.apache.spark.sql.binshift.realtime

import org.apache.spark.internal.Logging
import org.apache.spark.sql.binshift.internals.SparkInternals
import org.apache.spark.sql.catalyst.plans.physical.HashPartitioningLike
import org.apache.spark.sql.execution.{SparkPlan, UnionExec}
import org.apache.spark.sql.execution.streaming.RealTimeTrigger
import org.apache.spark.sql.execution.streaming.operators.stateful.transformwithstate.TransformWithStateExec
import org.apache.spark.sql.execution.streaming.runtime.{MicroBatchExecution, RealTimeModeAllowlist, StreamExecution}
import org.apache.spark.sql.execution.streaming.state.binshift.{BinshiftConf, BinshiftException}
import org.apache.spark.sql.internal.SQLConf

/**
 * Queries in Spark's real-time mode, whose rows flow through all stages while a batch is open.
 *
 * Spark lists the providers and operators of the mode by class name. The three places where binshift gets past these lists are
 * here, and docs/porting.md names the test of each. They apply only to queries of sessions that ask for it (`binshift.realTime`).
 */
private[binshift] object RealTimeMode extends Logging {

  def isOf(query: StreamExecution): Boolean = query.trigger.isInstanceOf[RealTimeTrigger]

  /**
   * True if the session in which the query was started asked for it. Throws nothing, because a listener calls this, and Spark hides
   * the failures of listeners.
   */
  private def isWanted(query: StreamExecution): Boolean =
    query.sparkSessionForStream.conf.getOption(BinshiftConf.RealTime).flatMap(_.toBooleanOption).contains(true)

  /**
   * Gives a query of a session that asks for real-time mode binshift's provider. Called on the stream's thread, when the
   * query starts.
   *
   * Relies on Spark: `StreamingQueryManager` refuses a provider that the session names and that is not Spark's own, before
   * it clones the session for the query; the run sets defaults in that clone after its listeners were called, and only
   * where nothing is set.
   */
  def begin(query: StreamExecution): Unit = {
    val conf = query.sparkSessionForStream.conf
    if (isWanted(query)) {
      if (!conf.contains(SQLConf.STATE_STORE_PROVIDER_CLASS.key))
        conf.set(SQLConf.STATE_STORE_PROVIDER_CLASS.key, classOf[_root_.binshift.StateStoreProvider].getName)
      if (!conf.contains(SparkInternals.ChangelogKey)) conf.set(SparkInternals.ChangelogKey, "true")
      if (isOf(query)) conf.set(BinshiftConf.RealTimeRun, "true")
    }
  }

  def protocolOf(query: MicroBatchExecution): EpochProtocol =
    if (isOf(query)) new LoggedAtTheEnd(query) else new LoggedAhead(query)

  /**
   * Refuses plans that the mode, or binshift in this mode, can't run. Called while a batch is planned, before anything of it is
   * written.
   *
   * Relies on Spark: after all rules, Spark compares the plan with a list of class names. The list doesn't contain the operator that
   * accepts binshift's provider. So we compare the plan with that list here, as Spark made it.
   *
   * @param plan before operators are replaced
   */
  def requireAllowed(query: MicroBatchExecution, plan: SparkPlan): Unit = {
    if (!isWanted(query)) throw BinshiftException("REAL_TIME_NOT_ENABLED").configuration(
      s"query ${query.id} is in real-time mode, and its checkpoint was written by binshift; set ${BinshiftConf.RealTime} to " +
        "true, as binshift.configure(builder, real_time=True) does, or start it with another trigger")
    if (query.getClass != classOf[MicroBatchExecution]) throw unsupported(query,
      "asyncProgressTrackingEnabled", "logs of offsets and commits are written in the background, in any order", "leave it out")
    if (query.sparkSessionForStream.sessionState.conf.stateStoreCheckpointFormatVersion < 2)
      throw unsupported(query, s"${SQLConf.STATE_STORE_CHECKPOINT_FORMAT_VERSION.key}=1",
        "state of a batch that did not end would pass for that of the next one", "set it to 2 and start with a new checkpoint")
    RealTimeModeAllowlist.checkAllowedSink(query.sink, throwException = true)
    RealTimeModeAllowlist.checkAllowedPhysicalOperator(plan, throwException = true)
    // Read from the user's session, as Spark does.
    val isChecked = query.sparkSession.sessionState.conf.getConf(SQLConf.STREAMING_REAL_TIME_MODE_ALLOWLIST_CHECK)
    if (isChecked) replaced(plan).foreach(what =>
      throw unsupported(query,
        s"$what with ${SQLConf.STREAMING_REAL_TIME_MODE_ALLOWLIST_CHECK.key}=true",
        "Spark compares its operator with a list of class names, on which binshift's is not",
        "set it to false: binshift compares the plan with Spark's list itself"))
  }

  /** The part of a plan that needs an operator of binshift's own, with this number of state partitions or another. */
  private def replaced(plan: SparkPlan): Option[String] = plan.collectFirst {
    case _: TransformWithStateExec => "transformWithState"
    case union: UnionExec if union.outputPartitioning.isInstanceOf[HashPartitioningLike] =>
      "a union of branches that you partition by the same keys"
  }

  private def unsupported(query: MicroBatchExecution, what: String, why: String, next: String): BinshiftException =
    BinshiftException("REAL_TIME_UNSUPPORTED", "what" -> what).configuration(
      s"query ${query.id} is in real-time mode, in which binshift cannot do $what, because $why; $next")
}
