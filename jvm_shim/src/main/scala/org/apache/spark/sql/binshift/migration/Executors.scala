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
 * @param live           hosts of executors that get tasks, by id
 * @param decommissioned ids of executors that exist but get no more tasks, because Spark decommissions them
 * @param excluded       ids of executors that exist but get no tasks for a while, because too many failed there
 */
private[binshift] final case class Executors(
    live: SortedMap[String, String], decommissioned: Set[String], excluded: Set[String]) extends Logging {

  def isThere(id: String): Boolean = live.contains(id) || decommissioned(id) || excluded(id)

  /** Refuses a plan that names an executor that isn't live. */
  def requireLive(named: Seq[String]): Unit =
    Executors.requireLive(named, live.keys.toSeq, decommissioned, excluded)

  /**
   * The live executors among `named`. If none of them is live, returns all live ones and logs that: executors may die, or belong to
   * another application, after a plan was accepted. Never returns one of `but`.
   */
  def preferred(named: Seq[String], but: Set[String], query: UUID): Seq[String] = {
    val possible = live.keys.toSeq.filterNot(but)
    val found = possible.filter(named.contains)
    if (found.isEmpty && named.nonEmpty) {
      logWarning(s"query $query: of the executors ${named.mkString(", ")}, which should get partitions, none is alive " +
        s"any more; the partitions go to ${possible.mkString(", ")}")
    }
    if (found.isEmpty) possible else found
  }
}

private[binshift] object Executors {

  /** Also used for plans that are made in this JVM. */
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
   * Relies on Spark: for the scheduler, an executor is alive from the time when it was first offered a task until it is lost or
   * decommissioned. The only executor of a local master always counts, because a job there would wait for ever for any other one. An
   * excluded executor stays alive.
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
   * Ids of executors to which Spark gives no tasks of the application, because too many have failed there or on their host. Sends no
   * message, and does nothing unless Spark is set to exclude executors.
   *
   * Relies on Spark: it tells its listeners of each executor that it excludes or admits again, and the status store records that.
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
   * Ids of executors that have been offered a task and are not lost. Sends no message, and may be called by any thread. `None` if the
   * scheduler isn't one of Spark's own.
   *
   * Relies on Spark: the scheduler has an entry for each of them, until it is lost.
   */
  def known(context: SparkContext): Option[collection.Set[String]] = context.taskScheduler match {
    case scheduler: TaskSchedulerImpl => Some(scheduler.runningTasksByExecutors.keySet)
    case _ => None
  }

  /**
   * Ids of executors that Spark is about to remove and that still exist. Sends no message, and may be called by any thread.
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
