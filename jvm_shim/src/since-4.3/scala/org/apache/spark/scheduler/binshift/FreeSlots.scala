package org.apache.spark.scheduler.binshift

import org.apache.spark.SparkContext
import org.apache.spark.scheduler.TaskSchedulerImpl

/** Counts free slots as the scheduler does for a job whose tasks all run at once. That's why it is in the scheduler's package. */
private[spark] object FreeSlots {

  /**
   * Slots that no other work takes. A task of another job takes one from the moment when its stage is submitted until it has
   * succeeded, whether it runs or is itself waiting for a slot. May be called from any thread.
   *
   * Relies on Spark: the scheduler admits a job whose stages run at once if their tasks are no more than the slots of the
   * default resource profile, less the outstanding tasks of that profile. We ask the scheduler, because what listeners write lags
   * behind it. Jobs of a streaming query have its run as their group.
   *
   * The slots of single executors are known from what listeners wrote when the executors joined. An executor that Spark is about to
   * remove no longer has any.
   *
   * @param run     the run whose own tasks are not counted, because they are over when its next batch begins
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
            // Tasks of other work on these executors are outstanding tasks, too.
            slots.getOrElse(executor, 0) - (scheduler.runningTasksByExecutors.getOrElse(executor, 0) - ours)
          }
          scheduler.outstandingTasksForOtherWorkInProfile(profile.id, own.map(_.taskSet.stageId).toSet) + unused.sum
        }
      case _ => leaving.toSeq.flatMap(slots.get).sum
    }
    math.max(context.maxNumConcurrentTasks(profile) - taken, 0)
  }
}
