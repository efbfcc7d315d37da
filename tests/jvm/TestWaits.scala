package org.apache.spark.sql.binshift.migration

import java.util.{HashMap, List => JList, Map => JMap, UUID}
import java.util.concurrent.CountDownLatch

import scala.concurrent.{ExecutionContext, Future}
import scala.jdk.CollectionConverters._

import org.apache.spark.SparkContext
import org.apache.spark.scheduler.TaskSchedulerImpl
import org.apache.spark.scheduler.binshift.TaskSets
import org.apache.spark.sql.execution.streaming.runtime.StreamExecution

/** Jobs whose tasks prefer executors while all slots of a local master are taken, until they are released. */
final class TestWaits(context: SparkContext) {
  private val jobs = Seq.newBuilder[Future[Unit]]
  TestWaits.latch = new CountDownLatch(1)

  /** A job of a query takes all slots, and has one more task that waits for the only executor. */
  def occupy(query: UUID): Unit = begin(query, Seq.fill(context.defaultParallelism + 1)("driver"))

  /** A job of a query whose tasks wait for executors. */
  def begin(query: UUID, executors: JList[String]): Unit = begin(query, executors.asScala.toSeq)

  private def begin(query: UUID, executors: Seq[String]): Unit = {
    val places = executors.zipWithIndex.map { case (e, i) => (i, Seq(s"executor_host_$e")) }
    jobs += Future {
      context.setLocalProperty(StreamExecution.QUERY_ID_KEY, query.toString)
      context.makeRDD(places).foreach(_ => TestWaits.latch.await())
    }(ExecutionContext.fromExecutor(command => new Thread(command).start()))
  }

  /** Returns for each query how many milliseconds its tasks wait for their preferred executors. */
  def inForce(): JMap[String, Long] = {
    val found = new HashMap[String, Long]
    TaskSets.waiting(context.taskScheduler.asInstanceOf[TaskSchedulerImpl])
      .foreach(w => w.query.foreach(found.put(_, w.waitMs)))
    found
  }

  /** Releases the tasks; returns the jobs' results. */
  def ended(): String = {
    TestWaits.latch.countDown()
    // A local master offers its slots only when something happens.
    context.makeRDD(Seq(0)).count()
    jobs.result().map(_.value.fold("under way")(_.fold(_.toString, _ => "over"))).distinct.mkString("; ")
  }
}

object TestWaits {
  /** Tasks of a local master are in this JVM. */
  @volatile private var latch = new CountDownLatch(0)
}
