package binshift.tests

import java.util
import java.util.concurrent.ConcurrentLinkedQueue

import org.apache.spark.{ExceptionFailure, SparkContext}
import org.apache.spark.scheduler.{SparkListener, SparkListenerTaskEnd}

/** Notes why tasks fail if no test has made them fail. When such a task is tried again, it may succeed, and nobody would see it. */
object TestTasks extends SparkListener {
  private val reasons = new ConcurrentLinkedQueue[String]
  private var heard: SparkContext = _

  def listenTo(context: SparkContext): Unit = synchronized {
    if (heard ne context) context.addSparkListener(this)
    heard = context
  }

  override def onTaskEnd(end: SparkListenerTaskEnd): Unit = end.reason match {
    // A thread that was interrupted on purpose fails wherever it waits next.
    case failure: ExceptionFailure if Seq("on purpose", "Interrupt").forall(!failure.toErrorString.contains(_)) =>
      reasons.add(failure.toErrorString): Unit
    case _ =>
  }

  /** Why tasks have failed since the last call. */
  def takeFailures(): util.List[String] = {
    val taken = new util.ArrayList[String]
    Iterator.continually(reasons.poll()).takeWhile(_ != null).foreach(taken.add(_))
    taken
  }
}
