package org.apache.spark.sql.binshift

import org.apache.spark.scheduler.{ExecutorCacheTaskLocation, TaskLocation}
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.streaming.operators.stateful.StateStoreWriter
import org.apache.spark.sql.execution.streaming.state.{StateStoreId, StateStoreProviderId}
import org.apache.spark.storage.BlockManagerId

/**
 * Where the partitions of an operator live, as Spark's scheduler believes.
 *
 * Relies on Spark: stateful tasks prefer the executor that the state-store coordinator has for their
 * partition, which is the one that reported it last; an executor that reports a store is told which
 * of its other stores the coordinator has elsewhere, and closes those after a last maintenance.
 *
 * Called on the stream's thread while an epoch at which the number of partitions changes is planned.
 */
private[binshift] object Placement {

  /**
   * Lets executors close the stores of partitions that no longer exist, by having the coordinator
   * believe that they are elsewhere. [[place]] undoes this for a partition that comes back.
   */
  def retire(session: SparkSession, op: StateStoreWriter, partitions: Range): Unit =
    partitions.foreach(report(session, op, _, Nowhere, Nowhere))

  /** Spreads new partitions over the live executors, those with the fewest partitions first. */
  def place(session: SparkSession, op: StateStoreWriter, partitions: Range): Unit = {
    val executors = liveExecutors(session)
    if (executors.nonEmpty && partitions.nonEmpty) {
      val coordinator = session.streams.stateStoreCoordinator
      val located = (0 until partitions.start)
        .flatMap(p => coordinator.getLocation(ids(op, p).head)).map(TaskLocation(_))
        .collect { case l: ExecutorCacheTaskLocation => l.executorId }
      val load = scala.collection.mutable.Map(executors.map(e => e.executorId -> 0): _*)
      located.foreach(e => load.updateWith(e)(_.map(_ + 1)))
      partitions.foreach { p =>
        val target = executors.minBy(e => load(e.executorId))
        load(target.executorId) += 1
        report(session, op, p, target.host, target.executorId)
      }
    }
  }

  private def liveExecutors(session: SparkSession): Seq[BlockManagerId] = {
    val context = session.sparkContext
    context.env.blockManager.master.getMemoryStatus.keys.toSeq
      .filter(e => context.isLocal || !e.isDriver).sortBy(_.executorId)
  }

  private def report(
      session: SparkSession, op: StateStoreWriter, partition: Int, host: String, executor: String): Unit =
    ids(op, partition).foreach { id =>
      session.streams.stateStoreCoordinator.reportActiveInstance(id, host, executor, Nil)
    }

  /** A join of an older state format has several stores per partition. */
  private def ids(op: StateStoreWriter, partition: Int): Seq[StateStoreProviderId] = {
    val info = op.getStateInfo
    op.stateStoreNames.map { name =>
      StateStoreProviderId(
        StateStoreId(info.checkpointLocation, info.operatorId, partition, name), info.queryRunId)
    }
  }

  private val Nowhere = "binshift-retired"
}
