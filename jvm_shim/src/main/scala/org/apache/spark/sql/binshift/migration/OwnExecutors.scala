package org.apache.spark.sql.binshift.migration

import scala.util.control.NonFatal

import org.apache.spark.{ExecutorAllocationClient, SparkContext}
import org.apache.spark.internal.{config, Logging}
import org.apache.spark.sql.binshift.internals.SparkInternals
import org.apache.spark.sql.execution.streaming.state.binshift.BinshiftException

/**
 * Asks Spark for executors and gives them back, for an autoscaler that was allowed to.
 *
 * An executor is given back between two epochs: no task of the query runs there then, and no epoch that is to come wants
 * what its last tasks have left there for other tasks.
 *
 * Relies on Spark: a cluster manager holds no more executors than were asked for in total. An executor that is killed by
 * request gets no task from the call on, and its tasks do not count as failures.
 *
 * Called under the router's lock, but for `requireOurs` and `request`, which may wait for the cluster manager, and for what
 * says that it needs none.
 *
 * @param others a query of the same application that asks for executors, too
 * @param inUse  executors with partitions of any query of the application; needs no lock
 */
private[binshift] final class OwnExecutors(
    context: SparkContext, others: () => Option[String], inUse: () => Set[String]) extends Logging {
  import OwnExecutors._

  @volatile private var waiting = Set.empty[String]
  @volatile private var gone = Set.empty[String]
  /** Executors that were to go and stay, because partitions have come there. Nobody knows of them yet. */
  private var kept = Set.empty[String]
  @volatile private var isUsed = false

  /** Whether executors were asked for, or their number was held, and nobody has left them to others since. Needs no lock. */
  def areOurs: Boolean = isUsed

  /** Lets other queries of the application ask for executors. Their number stays. Needs no lock. */
  def leaveToOthers(): Unit = isUsed = false

  /** Tasks that run at the same time on executors that stay. Needs no lock. */
  def taskSlots: Int = {
    // Relies on Spark: it does not count executors that it was told to kill. It does count those that wait for the next epoch.
    val slots = SparkInternals.taskSlots(context)
    val going = waiting
    if (going.isEmpty) slots
    else {
      val executors = Executors.of(context)
      val counted = executors.live.keySet.toSet ++ executors.excluded -- gone
      slots - slots * counted.count(going) / math.max(counted.size, 1)
    }
  }

  /** Executors that were given back, or will be with the next epoch, as long as they are there. */
  def leaving: Set[String] = waiting ++ gone

  /** @throws BinshiftException if executors are not ours to ask for */
  def requireOurs(): Unit = {
    val why = (context.schedulerBackend, others()) match {
      case _ if context.isLocal => Some("a local master has one executor, which stays")
      case _ if context.conf.get(config.DYN_ALLOCATION_ENABLED) =>
        Some(s"dynamic allocation decides on it; set ${config.DYN_ALLOCATION_ENABLED.key} to false")
      case (_: ExecutorAllocationClient, None) => None
      case (_: ExecutorAllocationClient, Some(query)) => Some(s"query $query of this application does it already")
      case _ => Some(s"the cluster manager of ${context.master} takes no requests")
    }
    why.foreach(refuse)
  }

  /** Asks for so many in all, and does not wait for them. */
  def request(total: Int): Unit = {
    // One query after the other, so that two do not both find that nobody asks.
    OwnExecutors.synchronized {
      requireOurs()
      isUsed = true
    }
    if (!ask(total)) {
      refuse(s"the cluster manager of ${context.master} has not taken the request for $total; the next look asks again")
    }
    logInfo(s"$total executors in all were asked for")
  }

  private def ask(total: Int): Boolean = {
    val isTaken = context.requestTotalExecutors(total, 0, Map.empty)
    if (isTaken) asked = Some((SparkInternals.applicationOf(context), total))
    isTaken
  }

  /** Gives executors back with the next epoch, or at once if no epoch `isUnderWay`. Returns those that stay after all. */
  def giveBack(ids: Seq[String], isUnderWay: Boolean): Set[String] = {
    waiting ++= ids
    if (isUnderWay) Set.empty else enter()
  }

  /** While an epoch is planned, before its tasks begin. Returns executors that were to go, and stay because they are used. */
  def enter(): Set[String] = {
    if (leaving.nonEmpty) {
      val executors = Executors.of(context)
      val ids = waiting.filter(executors.isThere)
      waiting = Set.empty
      synchronized { gone = gone.filter(executors.isThere) ++ ids }
      if (ids.nonEmpty) {
        // Spark takes them from the scheduler at once, and then waits for the cluster manager. A stream must not.
        val asking = new Thread(() => killUnused(ids), "binshift-give-back")
        asking.setDaemon(true)
        asking.start()
        asking.join(MaxWaitMs)
      }
    }
    synchronized {
      val stay = kept
      kept = Set.empty
      stay
    }
  }

  /** Since they were to go, another query may have placed partitions there. */
  private def killUnused(ids: Set[String]): Unit =
    try {
      val used = ids.intersect(inUse())
      // First, because tasks of the next epoch may come there soon.
      try if (used != ids) kill((ids -- used).toSeq.sorted)
      finally if (used.nonEmpty) keep(used)
    } catch {
      case NonFatal(e) => logWarning(s"executors ${ids.toSeq.sorted.mkString(", ")} could not be given back", e)
    }

  private def keep(ids: Set[String]): Unit = {
    logInfo(s"executors ${ids.toSeq.sorted.mkString(", ")} stay, because partitions have come there")
    synchronized {
      gone --= ids
      kept ++= ids
    }
    // The total was lowered for them.
    OwnExecutors.synchronized {
      asked.foreach { case (application, total) =>
        if (isUsed && application == SparkInternals.applicationOf(context) && !ask(total + ids.size))
          logWarning(s"the cluster manager has not taken the request for ${total + ids.size} executors; the next look asks again")
      }
    }
  }

  private def kill(ids: Seq[String]): Unit = {
    val taken = context.schedulerBackend match {
      case client: ExecutorAllocationClient =>
        client.killExecutors(ids, adjustTargetNumExecutors = false, countFailures = false, force = true)
      case _ => Nil
    }
    if (taken.size == ids.size) logInfo(s"executors ${ids.mkString(", ")} were given back")
    else logWarning(s"of executors ${ids.mkString(", ")}, Spark took back ${taken.size}; the others stay without partitions")
  }

  private def refuse(reason: String): Nothing = throw BinshiftException("EXECUTORS_NOT_OURS").configuration(
    s"binshift cannot change the number of executors: $reason; without max_executors, an autoscaler leaves it alone")
}

private[binshift] object OwnExecutors {
  private val MaxWaitMs = 1000L

  /** How many executors of an application were asked for last. */
  @volatile private var asked = Option.empty[(String, Int)]

  /** How many executors the application is to have, with those that are not there yet: as asked for last, or as set. */
  def configured(context: SparkContext): Option[Int] =
    asked.collect { case (application, total) if application == SparkInternals.applicationOf(context) => total }
      .orElse(context.conf.get(config.EXECUTOR_INSTANCES))
}
