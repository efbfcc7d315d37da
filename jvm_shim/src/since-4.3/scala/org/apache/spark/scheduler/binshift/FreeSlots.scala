package org.apache.spark.scheduler.binshift

import org.apache.spark.SparkContext
import org.apache.spark.scheduler.TaskSchedulerImpl

/** What the scheduler compares the tasks of a job with, all of which are to run at once. In its package, because of that. */
private[spark] object FreeSlots {

  /**
   * Slots that no other work has: a task of another job takes one from when its stage is submitted until it has succeeded,
   * whether it runs or waits for a slot itself. Any thread.
   *
   * Relies on Spark: the scheduler admits a job whose stages run at once if their tasks are no more than the slots of the
   * default resource profile, less the outstanding tasks of that profile. The scheduler is asked, because what listeners
   * write lags behind it. Jobs of a streaming query have its run as their group.
   *
   * Slots of single executors are known from what listeners wrote when they joined. One that Spark is about to remove has
   * none any more.
   *
   * @param run     whose own tasks are not counted: they are over when its next batch begins
   * @param leaving executors whose slots are not to be used
   */
  def freeBut(context: SparkContext, run: String, leaving: Set[String] = Set.empty): Int = {
    val profile = context.resourceProfileManager.defaultResourceProfile
    lazy val slots = context.statusStore.executorList(activeOnly = true).map(e => e.id -> e.maxTasks).toMap
    val taken = context.taskScheduler match {
      case scheduler: TaskSchedulerImpl => scheduler.synchronized {
          val own = TaskSets.managers(scheduler.rootPool)
            .filter(m => Option(m.taskSet.properties).exists(_.getProperty(SparkContext.SPARK_JOB_GROUP_ID) == run))
          val unused = leaving.filter(scheduler.isExecutorAlive).toSeq.map { executor =>
            val ours = own.map(_.taskInfos.values.count(t => t.running && t.executorId == executor)).sum
            // Those of other work there are outstanding tasks, too.
            slots.getOrElse(executor, 0) - (scheduler.runningTasksByExecutors.getOrElse(executor, 0) - ours)
          }
          scheduler.outstandingTasksForOtherWorkInProfile(profile.id, own.map(_.taskSet.stageId).toSet) + unused.sum
        }
      case _ => leaving.toSeq.flatMap(slots.get).sum
    }
    math.max(context.maxNumConcurrentTasks(profile) - taken, 0)
  }
}
