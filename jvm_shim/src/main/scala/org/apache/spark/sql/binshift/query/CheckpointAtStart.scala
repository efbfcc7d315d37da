package org.apache.spark.sql.binshift.query

import org.apache.spark.sql.binshift.internals.SparkInternals
import org.apache.spark.sql.binshift.stock.TakeoverEpochs
import org.apache.spark.sql.catalyst.plans.logical.{LogicalPlan, ReturnAnswer}
import org.apache.spark.sql.execution.{SparkPlan, SparkStrategy}
import org.apache.spark.sql.execution.streaming.operators.stateful.StateStoreWriter
import org.apache.spark.sql.execution.streaming.runtime.{IncrementalExecution, MicroBatchExecution, StreamExecution}
import org.apache.spark.sql.execution.streaming.state.binshift.BinshiftException
import org.apache.spark.sql.execution.streaming.state.binshift.checkpoint.Layout
import org.apache.spark.sql.internal.SQLConf

/**
 * Refuses to start a query, whether it has state or not, on a checkpoint that is only half copied; and one that has lost or gained
 * stateful operators since its checkpoint was written. It says which ones and what to do. Spark refuses the latter as well, but only
 * lists all operators.
 *
 * Never plans anything itself. Called on the stream's thread for its own plans, and for others of the query's session. A query that a
 * `foreachBatch` starts has a copy of the session, with this strategy in it.
 *
 * Relies on Spark: a session's own strategies are asked before all others, first for the plan as a whole. Operators are numbered in the
 * order in which they are met from the sink on, and a query with another number of operators is refused.
 */
private[binshift] final class CheckpointAtStart(query: MicroBatchExecution) extends SparkStrategy {
  import CheckpointAtStart._

  /** True while this class has the plan planned, to see its operators. */
  private var isComparing = false

  override def apply(plan: LogicalPlan): Seq[SparkPlan] = {
    plan match {
      case ReturnAnswer(batch) if batch.isStreaming && !isComparing && Thread.currentThread() == query.queryExecutionThread =>
        for (execution <- Option(query.getLatestExecutionContext().executionPlan) if execution.isFirstBatch) {
          requireWhole()
          if (execution.currentBatchId > 0 && isInBins) requireSame(plan, execution)
        }
      case _ =>
    }
    Nil
  }

  /** True if the layout in the checkpoint is that of the query's state. */
  private def isInBins: Boolean = TakeoverEpochs.of(query.runId).isEmpty &&
    SparkInternals.isBinshiftProvider(query.sparkSessionForStream.sessionState.conf.getConf(SQLConf.STATE_STORE_PROVIDER_CLASS))

  /** Whoever makes a copy may still write over everything, and files may be missing. */
  private def requireWhole(): Unit = {
    val dir = SparkInternals.controlDir(query)
    if (dir.isUnfinishedCopy) throw BinshiftException("COPY_UNFINISHED", "checkpoint" -> dir.checkpoint).configuration(
      s"${dir.checkpoint} is a copy of a checkpoint that is not finished: `binshift fork` or `binshift savepoint export` still runs, " +
        "or was cut short; let it end, or run it again with the same target")
  }

  private def operatorsOf(plan: LogicalPlan, execution: IncrementalExecution): Seq[String] = {
    isComparing = true
    try execution.planner.plan(plan).next().collect { case op: StateStoreWriter => op.shortName }
    finally isComparing = false
  }

  private def requireSame(plan: LogicalPlan, execution: IncrementalExecution): Unit =
    for (layout <- Layout.read(SparkInternals.controlDir(query))) {
      val stored = layout.operators.toSeq.sortBy(_._1).map(_._2.name)
      val planned = operatorsOf(plan, execution)
      if (stored.size != planned.size)
        throw BinshiftException("OPERATORS_CHANGED", "stored" -> named(stored), "planned" -> named(planned)).configuration(
          s"since epoch ${execution.currentBatchId - 1}, the query has " +
            whatChanged(stored, planned, query.resolvedCheckpointRoot))
    }
}

private[binshift] object CheckpointAtStart {

  /** Has the operators of a query compared when it plans its first batch. Called before it does, on the stream's thread. */
  def watch(query: StreamExecution): Unit = query match {
    case batches: MicroBatchExecution =>
      val methods = batches.sparkSessionForStream.experimental
      methods.extraStrategies = new CheckpointAtStart(batches) +: methods.extraStrategies
    case _ =>
  }

  /**
   * Says what changed and what to do, as the rest of a sentence.
   *
   * @param stored  the names of the operators in the checkpoint, by their numbers
   * @param planned those of the query, of which there are more or fewer
   */
  private[query] def whatChanged(stored: Seq[String], planned: Seq[String], checkpoint: String): String = {
    val both = s"the checkpoint $checkpoint has ${named(stored)}, and the query ${named(planned)}"
    val (whole, part) = if (stored.size > planned.size) (stored, planned) else (planned, stored)
    without(whole, part) match {
      case Nil => s"lost and gained stateful operators: $both; start it with a new checkpoint, or change its operators back"
      case more if stored.size < planned.size =>
        s"gained stateful operators (${more.map(namedOf(planned, _)).mkString(", or ")}): $both; an operator can't begin in the middle " +
          "of a query, because it would lack the input until then; start the query with a new checkpoint, or take the operators out " +
          "again"
      case lost :: others =>
        def options(numbers: Seq[Int]) = numbers.map(n => s"--drop-operator $n").mkString(" ")
        val which = if (others.isEmpty) "" else others.map(options).mkString(" (or ", ", or ", ", whichever it has lost)")
        s"lost stateful operators (${(lost +: others).map(namedOf(stored, _)).mkString(", or ")}): $both; if their state may go, run " +
          s"`binshift fork $checkpoint NEW ${options(lost)}`$which, and start the query with the checkpoint NEW; otherwise put the " +
          "operators back"
    }
  }

  /** The sets of positions in `whole` without which `part` is left. */
  private def without(whole: Seq[String], part: Seq[String]): List[Seq[Int]] =
    whole.indices.combinations(whole.size - part.size).take(MaxTried).filter(gone =>
      whole.indices.diff(gone).map(whole) == part).take(MaxNamed)
      .toList

  private def named(operators: Seq[String]): String = if (operators.isEmpty) "none" else namedOf(operators, operators.indices)

  private def namedOf(operators: Seq[String], numbers: Seq[Int]): String = numbers.map(n => s"$n ${operators(n)}").mkString(", ")

  /** How many ways are tried. Of ten operators, five can be lost in 252 ways. */
  private val MaxTried = 10000
  /** How many ways in which operators may have been lost are told. */
  private val MaxNamed = 3
}
