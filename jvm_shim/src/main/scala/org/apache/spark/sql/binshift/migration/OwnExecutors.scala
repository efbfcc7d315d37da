package org.apache.spark.sql.binshift.migration

import org.apache.spark.{ExecutorAllocationClient, SparkContext}
import org.apache.spark.internal.config
import org.apache.spark.sql.binshift.internals.{CommittedEpoch, SparkInternals}
import org.apache.spark.sql.binshift.routing.RunState
import org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution
import org.apache.spark.sql.execution.streaming.state.binshift.{BinshiftException, OrWarn}

/**
 * Asks Spark for executors and gives them back, for an autoscaler that was allowed to do so.
 *
 * An executor is given back between two epochs. Then no task of the query runs there, and no later epoch needs the shuffle files of its
 * last tasks.
 *
 * Relies on Spark: a cluster manager keeps no more executors than the requested total. An executor that is killed by request gets no
 * tasks from the call on, and its tasks don't count as failures.
 *
 * Any thread may ask. Methods that don't say that they need no lock take that of the run, except `requireOurs` and `request`, which may
 * wait for the cluster manager.
 *
 * @param others returns a query of the same application that asks for executors, too
 * @param inUse  returns executors with partitions of any query of the application; needs no lock
 */
private[binshift] final class OwnExecutors(
    query: MicroBatchExecution, run: RunState, relocation: Relocation, others: () => Option[String], inUse: () => Set[String])
  extends OrWarn {
  import OwnExecutors._

  private val context = query.sparkSession.sparkContext

  @volatile private var waiting = Set.empty[String]
  @volatile private var gone = Set.empty[String]
  /** Executors that should have gone but stay, because partitions have moved there. The caller hasn't been told yet. */
  private var kept = Set.empty[String]
  @volatile private var isUsed = false

  /** True if this query has asked for executors, or held their number, and hasn't left them to others since. Needs no lock. */
  def areOurs: Boolean = isUsed

  /** Lets other queries of the application ask for executors. Their number stays. Needs no lock. */
  def leaveToOthers(): Unit = isUsed = false

  /** How many tasks can run at the same time on executors that stay. Needs no lock. */
  def taskSlots: Int = {
    // Relies on Spark: it doesn't count executors that it was told to kill. It does count those that wait for the next epoch.
    val slots = SparkInternals.taskSlots(context)
    val going = waiting
    if (going.isEmpty) slots
    else {
      val executors = Executors.of(context)
      val counted = executors.live.keySet.toSet ++ executors.excluded -- gone
      slots - slots * counted.count(going) / math.max(counted.size, 1)
    }
  }

  /** Executors that were given back, or will be with the next epoch, as long as they exist. Needs no lock. */
  def leaving: Set[String] = waiting ++ gone

  /** @throws BinshiftException if executors are not ours to ask for */
  def requireOurs(): Unit = {
    val why = (context.schedulerBackend, others()) match {
      case _ if context.isLocal => Some("a local master has one executor, which stays")
      case _ if context.conf.get(config.DYN_ALLOCATION_ENABLED) =>
        Some(s"dynamic allocation decides on it; set ${config.DYN_ALLOCATION_ENABLED.key} to false")
      case (_: ExecutorAllocationClient, None) => None
      case (_: ExecutorAllocationClient, Some(other)) => Some(s"query $other of this application does it already")
      case _ => Some(s"the cluster manager of ${context.master} takes no requests")
    }
    why.foreach(refuse)
  }

  /** Asks for this total number of executors, and doesn't wait for them. */
  def request(total: Int): Unit = {
    // One query at a time, so that two queries don't both find that nobody else asks.
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

  /**
   * Gives executors back as soon as no epoch needs them, and places no more partitions on them. Executors with partitions of any
   * query stay. Returns those that will go, as far as is known.
   */
  def giveBack(ids: Seq[String]): Seq[String] = {
    val unused = ids.filterNot(inUse())
    run.synchronized {
      val isUnderWay = run.now.epoch.exists(_ > CommittedEpoch.of(query))
      relocation.avoid(unused)
      waiting ++= unused
      val kept = if (isUnderWay) Set.empty[String] else enter()
      unused.filterNot(kept)
    }
  }

  /**
   * Called while an epoch is planned, before its tasks begin. Partitions may be placed again on executors that should have gone, but
   * stay because they are used; returns these.
   */
  def enter(): Set[String] = run.synchronized {
    if (leaving.nonEmpty) {
      val executors = Executors.of(context)
      val ids = waiting.filter(executors.isThere)
      synchronized { gone = gone.filter(executors.isThere) ++ ids }
      waiting = Set.empty
      if (ids.nonEmpty) {
        // Spark removes them from the scheduler at once, and then waits for the cluster manager, which a stream must not do.
        val asking = new Thread(() => killUnused(ids), "binshift-give-back")
        asking.setDaemon(true)
        asking.start()
        asking.join(MaxWaitMs)
      }
    }
    val stay = synchronized {
      val stay = kept
      kept = Set.empty
      stay
    }
    relocation.admit(stay)
    stay
  }

  /** Kills those that are still unused, because another query may have placed partitions there meanwhile. */
  private def killUnused(ids: Set[String]): Unit =
    orWarn(s"executors ${ids.toSeq.sorted.mkString(", ")} could not be given back") {
      val used = ids.intersect(inUse())
      // Done first, because tasks of the next epoch may come there soon.
      try if (used != ids) kill((ids -- used).toSeq.sorted)
      finally if (used.nonEmpty) keep(used)
    }

  private def keep(ids: Set[String]): Unit = {
    logInfo(s"executors ${ids.toSeq.sorted.mkString(", ")} stay, because partitions have come there")
    synchronized {
      gone --= ids
      kept ++= ids
    }
    // Raises the total again, which was lowered for them.
    OwnExecutors.synchronized {
      asked.foreach { case (application, total) =>
        if (isUsed && application == SparkInternals.applicationOf(context) && !ask(total + ids.size))
          logWarning(
            s"the cluster manager has refused the request for ${total + ids.size} executors; the autoscaler asks again " +
              "at its next look")
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
    else logWarning(
      s"of the executors ${ids.mkString(", ")}, Spark has taken back only ${taken.size}; the others stay, without partitions")
  }

  private def refuse(reason: String): Nothing = throw BinshiftException("EXECUTORS_NOT_OURS").configuration(
    s"binshift cannot change the number of executors: $reason; without max_executors, an autoscaler leaves it alone")
}

private[binshift] object OwnExecutors {
  private val MaxWaitMs = 1000L

  /** The total number of executors of an application that was requested last. */
  @volatile private var asked = Option.empty[(String, Int)]

  /** The number of executors that the application should have, including those that haven't joined: as requested last, or as set. */
  def configured(context: SparkContext): Option[Int] =
    asked.collect { case (application, total) if application == SparkInternals.applicationOf(context) => total }
      .orElse(context.conf.get(config.EXECUTOR_INSTANCES))
}
