package org.apache.spark.sql.binshift.migration

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

  /**
   * Spreads new partitions over the live executors, those with the fewest partitions first.
   *
   * @param only ids of the executors to be considered, if any is named and alive
   */
  def place(session: SparkSession, op: StateStoreWriter, partitions: Range, only: Seq[String]): Unit = {
    spread(session, op, partitions, preferred(liveExecutors(session), only), 0 until partitions.start)
  }

  /**
   * Has those of `partitions` that are on `executor` run elsewhere from the next epoch on.
   *
   * @param only ids of the executors to be considered, if any other than `executor` is named and alive
   */
  def vacate(
      session: SparkSession, op: StateStoreWriter, partitions: Seq[Int], executor: String, only: Seq[String]): Unit =
    spread(session, op, partitions.filter(executorOf(session, op, _).contains(executor)),
      preferred(liveExecutors(session).filter(_.executorId != executor), only), 0 until op.getStateInfo.numPartitions)

  /** The live executors, and the one that each partition of `operators` is on, if that is known. */
  def snapshot(session: SparkSession, operators: Seq[StateStoreWriter], partitions: Int): PlacementSnapshot =
    PlacementSnapshot(liveExecutors(session).map(_.executorId),
      (0 until partitions).map(p => operators.flatMap(executorOf(session, _, p)).distinct))

  private def preferred(live: Seq[BlockManagerId], only: Seq[String]): Seq[BlockManagerId] = {
    val named = live.filter(e => only.contains(e.executorId))
    if (named.isEmpty) live else named
  }

  private def spread(
      session: SparkSession, op: StateStoreWriter, partitions: Seq[Int], executors: Seq[BlockManagerId],
      others: Seq[Int]): Unit =
    if (executors.nonEmpty && partitions.nonEmpty) {
      val load = scala.collection.mutable.Map(executors.map(e => e.executorId -> 0): _*)
      others.flatMap(executorOf(session, op, _)).foreach(e => load.updateWith(e)(_.map(_ + 1)))
      partitions.foreach { p =>
        val target = executors.minBy(e => load(e.executorId))
        load(target.executorId) += 1
        report(session, op, p, target.host, target.executorId)
      }
    }

  private def executorOf(session: SparkSession, op: StateStoreWriter, partition: Int): Option[String] =
    session.streams.stateStoreCoordinator.getLocation(ids(op, partition).head).map(TaskLocation(_)).collect {
      case l: ExecutorCacheTaskLocation => l.executorId
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

/**
 * @param executors  ids of the live executors
 * @param partitions for each partition, the executors that its operators are on
 */
private[binshift] final case class PlacementSnapshot(executors: Seq[String], partitions: Seq[Seq[String]])
