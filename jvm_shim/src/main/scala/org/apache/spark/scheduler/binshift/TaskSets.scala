package org.apache.spark.scheduler.binshift

import scala.jdk.CollectionConverters._

import org.apache.spark.scheduler.{Schedulable, TaskLocality, TaskSchedulerImpl, TaskSetManager}
import org.apache.spark.sql.execution.streaming.runtime.StreamExecution

/**
 * The task sets that Spark's scheduler is running, and how long their tasks wait for the executor that they prefer. It is in the
 * scheduler's package, because task sets can't be accessed from elsewhere. May be called from any thread; each method takes the
 * scheduler's lock.
 *
 * Relies on Spark: a task set keeps its waits, one for each level of locality, and the tasks that still have to be launched, by the
 * executor that they prefer. Jobs of a streaming query carry its id as a local property.
 */
private[spark] object TaskSets {

  /**
   * @param waitMs  how long tasks wait for the very executor that they prefer
   * @param awaited executors for which tasks wait that still have to be launched
   * @param gone    those of them that get no tasks, because they are lost or decommissioned, or Spark excludes them
   */
  final case class Waiting(query: Option[String], stage: Int, waitMs: Long, awaited: Set[String], gone: Set[String])

  /** Task sets with tasks that prefer executors, of which at least one exists. */
  def waiting(scheduler: TaskSchedulerImpl): Seq[Waiting] = scheduler.synchronized(found(scheduler).map(_.waiting))

  /** Bounds the wait of tasks to `waitMs` in those sets for which `isToo` is true. Returns these sets as they were before. */
  def shorten(scheduler: TaskSchedulerImpl, waitMs: Long)(isToo: Waiting => Boolean): Seq[Waiting] = scheduler.synchronized {
    val long = found(scheduler).filter(f => f.waiting.waitMs > waitMs && isToo(f.waiting))
    long.foreach(f => f.manager.localityWaits(f.level) = waitMs)
    long.map(_.waiting)
  }

  /** All task sets of a scheduler's pool. Its own list omits those whose tasks all run. The caller holds the scheduler's lock. */
  private[scheduler] def managers(of: Schedulable): Seq[TaskSetManager] = of match {
    case manager: TaskSetManager => Seq(manager)
    case pool => pool.schedulableQueue.asScala.toSeq.flatMap(managers)
  }

  private def found(scheduler: TaskSchedulerImpl): Seq[Found] = for {
    m <- managers(scheduler.rootPool) if !m.isZombie
    level = m.myLocalityLevels.indexOf(TaskLocality.PROCESS_LOCAL) if level >= 0
  } yield {
    val query = Option(m.taskSet.properties).flatMap(p => Option(p.getProperty(StreamExecution.QUERY_ID_KEY)))
    val awaited = m.pendingTasks.forExecutor.collect {
      case (executor, tasks) if tasks.exists(i => m.copiesRunning(i) == 0 && !m.successful(i)) => executor
    }.toSet
    Found(m, level,
      Waiting(query, m.taskSet.stageId, m.localityWaits(level), awaited, awaited.filterNot(getsTasks(scheduler, m, _))))
  }

  private def getsTasks(scheduler: TaskSchedulerImpl, m: TaskSetManager, executor: String): Boolean =
    scheduler.isExecutorAlive(executor) && !scheduler.healthTrackerOpt.exists(_.isExecutorExcluded(executor)) &&
      !m.taskSetExcludelistHelperOpt.exists(_.isExecutorExcludedForTaskSet(executor))

  private final case class Found(manager: TaskSetManager, level: Int, waiting: Waiting)
}
