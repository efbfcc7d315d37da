package org.apache.spark.sql.binshift.migration

import java.util.UUID

import scala.collection.immutable.SortedMap

import org.apache.spark.internal.Logging
import org.apache.spark.scheduler.{HealthTracker, TaskSchedulerImpl}
import org.apache.spark.SparkContext
import org.apache.spark.sql.execution.streaming.state.binshift.BinshiftException

/**
 * The executors of the application at one moment.
 *
 * @param live           hosts of those that get tasks, by id
 * @param decommissioned ids of those that are there and get no task any more, because Spark decommissions them
 * @param excluded       ids of those that are there and get no task for a while, because too many failed there
 */
private[binshift] final case class Executors(
    live: SortedMap[String, String], decommissioned: Set[String], excluded: Set[String]) extends Logging {

  def isThere(id: String): Boolean = live.contains(id) || decommissioned(id) || excluded(id)

  /** Refuses a plan that names an executor which is not live. */
  def requireLive(named: Seq[String]): Unit =
    Executors.requireLive(named, live.keys.toSeq, decommissioned, excluded)

  /**
   * Those of `named` that are live, or all if none of them is, which the log then says: they may die, or be another
   * application's, after a plan was accepted. Never one of `but`.
   */
  def preferred(named: Seq[String], but: Set[String], query: UUID): Seq[String] = {
    val possible = live.keys.toSeq.filterNot(but)
    val found = possible.filter(named.contains)
    if (found.isEmpty && named.nonEmpty) {
      logWarning(s"query $query: of executors ${named.mkString(", ")}, on which partitions were to be placed, none is alive " +
        s"any more; they are placed on ${possible.mkString(", ")}")
    }
    if (found.isEmpty) possible else found
  }
}

private[binshift] object Executors {

  /** Also of a plan that is made in this JVM. */
  def requireLive(
      named: Seq[String], live: Seq[String], isDecommissioned: String => Boolean, isExcluded: String => Boolean): Unit =
    named.find(!live.contains(_)).foreach { executor =>
      val why =
        if (isExcluded(executor)) "gets no tasks, because Spark excludes it after failures; those that do are"
        else if (isDecommissioned(executor)) "gets no tasks, because Spark decommissions it; those that do are"
        else "is not alive; alive are"
      throw BinshiftException("EXECUTOR_NOT_ALIVE", "executor" -> executor).plan(
        s"executor '$executor' $why: ${live.mkString(", ")}")
    }

  /**
   * Relies on Spark: the scheduler calls an executor alive once it was offered a task, and until it is lost or
   * decommissioned. The only executor of a local master always counts, because a job there would wait for ever for
   * any other one. One that is excluded stays alive.
   */
  def of(context: SparkContext): Executors = {
    val known = context.env.blockManager.master.getMemoryStatus.keys.toSeq
      .filter(e => context.isLocal || !e.isDriver)
    val (live, others) = (context.taskScheduler, context.isLocal) match {
      case (scheduler: TaskSchedulerImpl, false) => known.partition(e => scheduler.isExecutorAlive(e.executorId))
      case _ => (known, Nil)
    }
    val leaving = context.taskScheduler match {
      case scheduler: TaskSchedulerImpl => others.map(_.executorId).filter(scheduler.getExecutorDecommissionState(_).nonEmpty)
      case _ => Nil
    }
    val excluded = this.excluded(context)
    val (without, offered) = live.partition(e => excluded(e.executorId))
    Executors(SortedMap.from(offered.map(e => e.executorId -> e.host)), leaving.toSet, without.map(_.executorId).toSet)
  }

  /**
   * Ids of executors to which Spark gives no task of the application, because too many have failed there or on their host.
   * Asks nobody, and looks at nothing unless Spark is set to exclude executors.
   *
   * Relies on Spark: it tells its listeners of each that it excludes or takes back, and the status store has what they heard.
   */
  private def excluded(context: SparkContext): Set[String] =
    if (context.isLocal || !HealthTracker.isExcludeOnFailureEnabled(context.conf)) Set.empty
    else {
      val hosts = context.taskScheduler match {
        case scheduler: TaskSchedulerImpl => scheduler.excludedNodes()
        case _ => Set.empty[String]
      }
      context.statusStore.executorList(activeOnly = true)
        .filter(e => e.isExcluded || hosts(e.hostPort.split(':').head)).map(_.id).toSet
    }

  /**
   * Ids of executors that have been offered a task and are not lost. Asks nobody, and may be called by any thread; `None`
   * if the scheduler is not one of Spark's own.
   *
   * Relies on Spark: the scheduler has an entry for each of them, until it is lost.
   */
  def known(context: SparkContext): Option[collection.Set[String]] = context.taskScheduler match {
    case scheduler: TaskSchedulerImpl => Some(scheduler.runningTasksByExecutors.keySet)
    case _ => None
  }

  /**
   * Ids of executors that Spark is about to remove and that are still there. Asks nobody, and may be called by any thread.
   *
   * Relies on Spark: the scheduler has an entry for each executor that was offered a task, until it is lost, and remembers
   * which of them are decommissioned.
   */
  def decommissioned(context: SparkContext): Set[String] = context.taskScheduler match {
    case scheduler: TaskSchedulerImpl =>
      scheduler.runningTasksByExecutors.keySet.filter(scheduler.getExecutorDecommissionState(_).nonEmpty)
    case _ => Set.empty
  }
}
