package org.apache.spark.sql.binshift.query

import java.util.UUID
import java.util.concurrent.ConcurrentHashMap

import scala.jdk.CollectionConverters._

import org.apache.spark.sql.binshift.migration.Placement
import org.apache.spark.sql.catalyst.QueryPlanningTracker
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.streaming.operators.stateful.StateStoreWriter
import org.apache.spark.sql.execution.streaming.runtime.StreamExecution
import org.apache.spark.sql.execution.streaming.state.binshift.OrWarn
import org.apache.spark.sql.execution.streaming.state.StateStoreProviderId

/** Finds the executors of the application's other queries. Those that don't use binshift have partitions, too. */
private[binshift] object OtherQueries extends OrWarn {

  /** The stores of each run, which has the same ones from its first batch on. */
  private val storesOfRuns = new ConcurrentHashMap[UUID, Seq[StateStoreProviderId]]()

  /** Executors with partitions of other queries than that of `router`. Needs no lock. */
  def executorsInUse(router: QueryRouter): Set[String] =
    QueryRouters.activeBut(router).flatMap(_.executorsInUse).toSet ++ executorsInUse(router.query.sparkSession)

  /**
   * Executors with stores of queries that have no router. May be called from any thread. Asks Spark's coordinator in this JVM for each
   * store, and holds no lock.
   *
   * Relies on Spark: `SharedState` knows the running queries of all sessions, and a query knows the plan of its latest batch. The number
   * of partitions is that of the checkpoint.
   */
  private def executorsInUse(session: SparkSession): Set[String] = {
    val queries = session.sharedState.activeStreamingQueries.values.asScala.toSeq
      .filter(q => q.isActive && QueryRouters.known(q.runId).isEmpty)
    storesOfRuns.keySet.retainAll(queries.map(_.runId).asJava)
    queries.flatMap(storesOf).flatMap(Placement.executorOf(session, _)).toSet
  }

  private def storesOf(query: StreamExecution): Seq[StateStoreProviderId] =
    Option(storesOfRuns.get(query.runId)).getOrElse {
      val stores = orWarn(s"query ${query.id}: its latest batch has no plan, so its executors are not known",
        Seq.empty[StateStoreProviderId])(inPlanOf(query))
      if (stores.nonEmpty) storesOfRuns.put(query.runId, stores)
      stores
    }

  /** Empty before the stream's own thread has planned a batch, because no other thread should do that. */
  private def inPlanOf(query: StreamExecution): Seq[StateStoreProviderId] = for {
    batch <- Option(query.lastExecution).toSeq if batch.tracker.phases.contains(QueryPlanningTracker.PLANNING)
    op <- batch.executedPlan.collect { case op: StateStoreWriter if op.stateInfo.nonEmpty => op }
    partition <- 0 until op.getStateInfo.numPartitions
    store <- Placement.stores(op, partition)
  } yield store
}
