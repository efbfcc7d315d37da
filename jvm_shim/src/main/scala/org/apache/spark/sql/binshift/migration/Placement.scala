package org.apache.spark.sql.binshift.migration

import java.util.UUID

import org.apache.spark.scheduler.{ExecutorCacheTaskLocation, TaskLocation}
import org.apache.spark.sql.binshift.internals.SparkInternals
import org.apache.spark.sql.binshift.routing.PlannedEpoch
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.streaming.operators.stateful.StateStoreWriter
import org.apache.spark.sql.execution.streaming.state.{StateStoreId, StateStoreProviderId}
import org.apache.spark.sql.execution.streaming.state.binshift.Trace

/**
 * Finds and changes the executors to which Spark's scheduler assigns the partitions of an operator.
 *
 * Relies on Spark: stateful tasks prefer the executor that the state-store coordinator knows for their partition, which is the
 * one that reported it last. An executor that reports a store is told which of its other stores the coordinator has elsewhere,
 * and closes those after a last maintenance.
 *
 * Methods that change places are called on the stream's thread while an epoch is planned.
 */
private[binshift] object Placement {

  /**
   * Lets executors close the stores of partitions that no longer exist, by making the coordinator believe that they are
   * elsewhere. [[place]] undoes this for a partition that comes back. Neither does anything if stores are closed at each commit. Such
   * stores never report, so nothing else would undo it, and the partition's tasks would wait for an executor that doesn't exist.
   */
  def retire(session: SparkSession, op: StateStoreWriter, partitions: Iterable[Int]): Unit =
    if (!SparkInternals.unloadsStores(session))
      for (p <- partitions; store <- stores(op, p)) put(session, store, Nowhere, Nowhere)

  /**
   * Spreads the new partitions of each operator over the live executors, beginning with those that have the fewest partitions.
   *
   * @param only ids of the executors to be considered, if any is named and alive
   * @param but  executors that are never considered
   */
  def place(
      session: SparkSession, query: UUID, operators: Seq[StateStoreWriter], partitions: Range, only: Seq[String],
      but: Set[String]): Unit = if (partitions.nonEmpty && operators.nonEmpty && !SparkInternals.unloadsStores(session)) {
    val executors = Executors.of(session.sparkContext)
    val possible = executors.preferred(only, but, query)
    for {
      op <- operators
      others = (0 until partitions.start).map(executorsOf(session, Seq(op), _).toSeq)
      (p, executor) <- spread(partitions, possible, others)
      store <- stores(op, p)
    } put(session, store, executors.live(executor), executor)
  }

  /**
   * Assigns each of `partitions` to the one of `executors` that has its files or, if none has, the fewest partitions.
   *
   * @param others    the executors of each of the other partitions
   * @param standbyOf the executors that have the files of a partition
   */
  def spread(
      partitions: Seq[Int], executors: Seq[String], others: Seq[Seq[String]], standbyOf: Int => Seq[String] = _ => Nil)
      : Seq[(Int, String)] = if (executors.isEmpty) Nil
  else {
    val load = scala.collection.mutable.Map(executors.map(_ -> 0): _*)
    others.flatten.foreach(e => load.updateWith(e)(_.map(_ + 1)))
    val ready = for { p <- partitions; executor <- standbyOf(p).find(executors.contains) } yield p -> executor
    ready.foreach { case (_, executor) => load(executor) += 1 }
    ready ++ partitions.diff(ready.map(_._1)).map { p =>
      val target = executors.minBy(load)
      load(target) += 1
      p -> target
    }
  }

  /** The executors of each of `n` partitions. */
  def placesOf(session: SparkSession, operators: Seq[StateStoreWriter], n: Int): IndexedSeq[Set[String]] =
    (0 until n).map(executorsOf(session, operators, _))

  /** The executors that have a store of a partition, over the operators that run it. */
  def executorsOf(session: SparkSession, operators: Seq[StateStoreWriter], partition: Int): Set[String] =
    operators.flatMap(stores(_, partition)).flatMap(executorOf(session, _)).toSet

  /** Makes the tasks of `partition` prefer `executor` from the next stage on, for the operators that run it. */
  def prefer(
      session: SparkSession, operators: Seq[StateStoreWriter], partition: Int, executor: String, host: String): Unit =
    for (op <- operators; store <- stores(op, partition); now <- executorOf(session, store) if now != executor) {
      if (Trace.isOn) Trace("moves to", store.storeId, "executor" -> executor, "before" -> now)
      put(session, store, host, executor)
    }

  /**
   * Makes the tasks of stores on lost executors prefer one of `live`, beginning with those that have the fewest partitions.
   * Returns whether each of them has got one.
   *
   * @param isThere whether an executor is not lost
   * @param live    hosts of the executors that may take partitions, by id
   */
  def leaveLost(
      session: SparkSession, operators: Seq[StateStoreWriter], n: Int, isThere: String => Boolean, live: Map[String, String])
      : Boolean = {
    val places = placesOf(session, operators, n)
    val lost = places.flatten.toSet.filterNot(isThere)
    val found = spread(places.indices.filter(places(_).exists(lost)), live.keys.toSeq, places.map(on => (on -- lost).toSeq))
    found.foreach { case (p, executor) => rescue(session, operators, p, lost, executor, live(executor)) }
    lost.isEmpty || found.nonEmpty
  }

  /**
   * Makes the tasks of those stores of `partition` that were on one of `dead` prefer `executor`. Returns whether there were any.
   */
  def rescue(
      session: SparkSession, operators: Seq[StateStoreWriter], partition: Int, dead: Set[String], executor: String,
      host: String): Boolean = {
    val lost = for (op <- operators; store <- stores(op, partition); now <- executorOf(session, store) if dead(now)) yield store
    lost.foreach { store =>
      if (Trace.isOn) Trace("rescued to", store.storeId, "executor" -> executor, "lost" -> dead)
      put(session, store, host, executor)
    }
    lost.nonEmpty
  }

  /** The stores of a partition. Joins of the older state formats have several. */
  def stores(op: StateStoreWriter, partition: Int): Seq[StateStoreProviderId] = {
    val info = op.getStateInfo
    op.stateStoreNames.map { name =>
      StateStoreProviderId(
        StateStoreId(info.checkpointLocation, info.operatorId, partition, name), info.queryRunId)
    }
  }

  /** The executor that has a store. */
  def executorOf(session: SparkSession, store: StateStoreProviderId): Option[String] =
    session.streams.stateStoreCoordinator.getLocation(store).map(TaskLocation(_)).collect {
      case l: ExecutorCacheTaskLocation => l.executorId
    }

  private def put(session: SparkSession, store: StateStoreProviderId, host: String, executor: String): Unit =
    session.streams.stateStoreCoordinator.reportActiveInstance(store, host, executor, Nil)

  private val Nowhere = "binshift-retired"
}

/**
 * @param executors      ids of the live executors
 * @param partitions     for each partition, the executors that its operators are on
 * @param decommissioned ids of executors that exist but get no tasks, because Spark is about to remove or has excluded them
 * @param leaving        ids of live executors that are or were drained
 * @param excluded       ids of those among the decommissioned that Spark excludes, and counts as executors of the application
 */
private[binshift] final case class PlacementSnapshot(
    executors: Seq[String], partitions: Seq[Seq[String]], decommissioned: Seq[String], leaving: Seq[String],
    excluded: Seq[String])

private[binshift] object PlacementSnapshot {

  /**
   * @param ending  executors that are about to go
   * @param leaving executors on which nothing should be placed
   */
  def of(session: SparkSession, now: PlannedEpoch, ending: Set[String], leaving: Set[String]): PlacementSnapshot = {
    val executors = Executors.of(session.sparkContext)
    val places = Placement.placesOf(session, now.operators, now.tables.current.fold(0)(_.table.partitions))
    PlacementSnapshot(executors.live.keys.toSeq.filterNot(ending), places.map(_.toSeq.sorted),
      (executors.decommissioned ++ executors.excluded).toSeq.sorted, leaving.toSeq.sorted, executors.excluded.toSeq.sorted)
  }
}
