package org.apache.spark.sql.binshift.migration

import java.util.Properties

import org.apache.spark.{SparkContext, SparkEnv}
import org.apache.spark.scheduler.ExecutorCacheTaskLocation

/** Runs a job with one short task for each of some executors. This reaches executors that have just joined and run no task yet. */
private[migration] object ExecutorJob {

  /**
   * Waits for all of them. Executors whose slots are busy for long, or that are gone, are not among those returned. Runs no job beside a
   * query in real-time mode, because that needs the slots.
   *
   * @param inputs by the executor's id, its host and the input of its task
   * @return the executors that have run their task
   */
  def run[T](context: SparkContext, description: String, inputs: Map[String, (String, T)])(work: Task[T]): Set[String] =
    if (inputs.isEmpty || RealTimeQueries.areIn(context)) Set.empty
    else {
      // A thread inherits properties from its creator, such as the job group by which a query cancels its jobs.
      context.setLocalProperties(new Properties)
      context.setJobGroup("binshift", description)
      val located = inputs.toSeq.map { case (executor, (host, input)) =>
        (executor, input) -> Seq(ExecutorCacheTaskLocation(host, executor).toString)
      }
      context.runJob(context.makeRDD(located), new OnItsExecutor(work)).flatten.toSet
    }

  /** The work of a task. */
  trait Task[T] extends Serializable {
    def run(input: T): Unit
  }

  /** A task that Spark runs elsewhere does nothing. */
  private final class OnItsExecutor[T](work: Task[T]) extends (Iterator[(String, T)] => Option[String]) with Serializable {
    override def apply(inputs: Iterator[(String, T)]): Option[String] =
      inputs.find(_._1 == SparkEnv.get.executorId).map { case (executor, input) =>
        work.run(input)
        executor
      }
  }
}
