package org.apache.spark.sql.binshift

import java.nio.file.Files
import java.util.UUID

import scala.collection.mutable

import org.apache.spark.sql.{DataFrame, classic}
import org.apache.spark.sql.binshift.routing.{ExchangeRouting, HashSources, StatefulOperators, TransformWithStateProvider}
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.catalyst.streaming.InternalOutputModes
import org.apache.spark.sql.execution.{ApplyColumnarRulesAndInsertTransitions, CommandExecutionMode, SparkPlan}
import org.apache.spark.sql.execution.streaming.checkpointing.OffsetSeqMetadata
import org.apache.spark.sql.execution.streaming.runtime.{IncrementalExecution, WatermarkPropagator}
import org.apache.spark.sql.execution.streaming.state.binshift.BinshiftException
import org.apache.spark.sql.execution.streaming.state.binshift.checkpoint.Storage
import org.apache.spark.sql.execution.streaming.state.binshift.routing.RoutingTable
import org.apache.spark.sql.internal.SQLConf

/**
 * Prepares the plan of a streaming query for an epoch, as a running query would, and looks at where its rows are. Nothing
 * of it is run.
 */
object TestPlans {
  private val Bins = 60

  /**
   * Finds the faults of a plan, a line each; or "refused: ..." if binshift refuses it. "followed: n" says how many operators have
   * rows that have to follow the table.
   *
   * @param epoch    in the first one, initial states are read
   * @param isRouted if false, binshift leaves the plan as Spark made it
   */
  def look(df: DataFrame, mode: String, partitions: Int, epoch: Long, isRouted: Boolean): String = {
    try {
      var binned = Set.empty[Long]
      var table = RoutingTable.initial(Bins, 1)
      val routed = prepared(df, mode, partitions, epoch) { spark =>
        val writers = StatefulOperators.writers(spark)
        def stored(storage: Storage) = writers.filter(StatefulOperators.layoutOf(_).storage == storage)
        binned = stored(Storage.Binned).map(StatefulOperators.idOf).toSet
        // Operators whose state cannot migrate keep the whole query from it.
        val owners = if (stored(Storage.Plain).isEmpty) moved(partitions) else Array.tabulate(Bins)(_ % partitions)
        table = RoutingTable(partitions, scala.collection.immutable.ArraySeq.unsafeWrapArray(owners))
        if (isRouted) {
          HashSources.requireThatRowsFollow(spark, writers)
          TransformWithStateProvider.accept(
            new ExchangeRouting(table, Set(1, 2), Set(1, 2), binned, isOrdered = true).apply(spark))
        } else spark
      }
      val problems = new PlanCheck(table.owners, binned, partitions).of(routed)
      val shown = if (problems.isEmpty) Nil else Seq(routed.toString)
      (s"followed: ${binned.size}" +: (problems ++ shown)).mkString("\n")
    } catch {
      case e: Exception if causes(e).exists(_.isInstanceOf[BinshiftException]) =>
        "refused: " + causes(e).collectFirst { case b: BinshiftException => b.getMessage }.get
    }
  }

  private def causes(e: Throwable): Seq[Throwable] = Iterator.iterate(e)(_.getCause).takeWhile(_ != null).toSeq

  /** Owners as they may be after some migrations. */
  private def moved(partitions: Int): Array[Int] = {
    val random = new scala.util.Random(partitions)
    Array.fill(Bins)(random.nextInt(partitions))
  }

  /** From what is done to the plan where rules of extensions see it, to the plan that is to be run. */
  private def prepared(df: DataFrame, mode: String, partitions: Int, epoch: Long)(
      change: SparkPlan => SparkPlan): SparkPlan = {
    val session = df.asInstanceOf[classic.Dataset[_]].sparkSession.cloneSession()
    // As Spark does it for any streaming query.
    session.conf.set(SQLConf.ADAPTIVE_EXECUTION_ENABLED.key, false)
    session.conf.set(SQLConf.CBO_ENABLED.key, false)
    val first = OffsetSeqMetadata(0L, 0L, session.conf)
    val metadata = first.copy(conf = first.conf + (SQLConf.SHUFFLE_PARTITIONS.key -> partitions.toString))
    OffsetSeqMetadata.setSessionConf(metadata, session.sessionState.conf)
    val place = Files.createTempDirectory("binshift-plans").toString
    val execution = new IncrementalExecution(
      session, df.asInstanceOf[classic.Dataset[_]].queryExecution.analyzed, InternalOutputModes(mode), place,
      UUID.randomUUID(), UUID.randomUUID(), epoch, None, metadata, WatermarkPropagator.noop(), false,
      mutable.Map.empty, mutable.Map.empty, CommandExecutionMode.SKIP, false, false) {
      override def preparations: Seq[Rule[SparkPlan]] = super.preparations.flatMap {
        case columnar: ApplyColumnarRulesAndInsertTransitions =>
          Seq(new Rule[SparkPlan] { override def apply(plan: SparkPlan): SparkPlan = change(plan) }, columnar)
        case other => Seq(other)
      }
    }
    session.withActive(execution.executedPlan)
  }
}
