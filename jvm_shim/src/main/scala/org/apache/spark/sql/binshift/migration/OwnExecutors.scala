package org.apache.spark.sql.binshift.migration

import scala.util.control.NonFatal

import org.apache.spark.{ExecutorAllocationClient, SparkContext}
import org.apache.spark.internal.{config, Logging}
import org.apache.spark.sql.execution.streaming.state.binshift.BinshiftException

/**
 * Asks Spark for executors and gives them back, for an autoscaler that may.
 *
 * An executor is given back between two epochs: no task of the query runs there then, and no epoch that is to come wants the
 * rows that its last tasks have left there for other tasks.
 *
 * Relies on Spark: cluster managers hold no more executors than were asked for in total; an executor that is killed by
 * request gets no task from that moment on, and its tasks do not count as failures.
 *
 * Called under the router's lock, but for `requireOurs` and `request`, which may wait for the cluster manager.
 */
private[binshift] final class OwnExecutors(context: SparkContext) extends Logging {
  import OwnExecutors._

  private var waiting = Set.empty[String]
  private var total = 0
  private var gone = Set.empty[String]

  /** Executors that were given back, or will be with the next epoch, as long as they are there. */
  def leaving: Set[String] = waiting ++ gone

  /** @throws BinshiftException if executors are not ours to ask for */
  def requireOurs(): Unit = {
    val why =
      if (context.isLocal) Some("a local master has one executor, which stays")
      else Option.when(context.getConf.get(config.DYN_ALLOCATION_ENABLED))(
        s"dynamic allocation asks for executors and gives them back; set ${config.DYN_ALLOCATION_ENABLED.key} to false")
    why.foreach(reason =>
      throw BinshiftException("EXECUTORS_NOT_OURS").configuration(
        s"the number of executors cannot be changed by binshift: $reason, or leave out max_executors"))
  }

  /** Asks for so many in all; whether Spark has heard it. Does not wait for them. */
  def request(total: Int): Boolean = {
    requireOurs()
    context.requestTotalExecutors(total, 0, Map.empty)
  }

  /** Gives executors back with the next epoch, or at once if no epoch `isUnderWay`; `stay` is how many are to stay. */
  def giveBack(ids: Seq[String], stay: Int, isUnderWay: Boolean): Unit = {
    requireOurs()
    waiting ++= ids
    total = stay
    if (!isUnderWay) enter()
  }

  /** While an epoch is planned, before its tasks begin. */
  def enter(): Unit = if (leaving.nonEmpty) {
    val executors = Executors.of(context)
    gone = gone.filter(executors.isThere)
    val ids = waiting.filter(executors.isThere)
    waiting = Set.empty
    if (ids.nonEmpty) {
      gone ++= ids
      // Not on the stream's thread, which must not wait for a cluster manager that does not answer.
      val stay = total
      val asking = new Thread(() => kill(ids.toSeq.sorted, stay), "binshift-executors")
      asking.setDaemon(true)
      asking.start()
      asking.join(MaxWaitMs)
    }
  }

  /** The cluster manager first hears how many are wanted, so that it starts none in the place of those that go. */
  private def kill(ids: Seq[String], stay: Int): Unit =
    try {
      val taken = context.schedulerBackend match {
        case client: ExecutorAllocationClient =>
          context.requestTotalExecutors(stay, 0, Map.empty)
          client.killExecutors(ids, adjustTargetNumExecutors = false, countFailures = false, force = true)
        case _ => Nil
      }
      if (taken.size == ids.size) logInfo(s"executors ${ids.mkString(", ")} were given back")
      else logWarning(s"of executors ${ids.mkString(", ")}, Spark took back ${taken.size}; the others stay without partitions")
    } catch {
      case NonFatal(e) => logWarning(s"executors ${ids.mkString(", ")} could not be given back", e)
    }
}

private object OwnExecutors {
  private val MaxWaitMs = 2000L
}
