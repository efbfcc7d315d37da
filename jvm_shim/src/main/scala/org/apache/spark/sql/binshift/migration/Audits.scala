package org.apache.spark.sql.binshift.migration

import scala.collection.mutable

import org.json4s.JObject
import org.json4s.JsonDSL._

import org.apache.spark.internal.Logging
import org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution
import org.apache.spark.sql.execution.streaming.state.binshift.BinshiftException
import org.apache.spark.sql.execution.streaming.state.binshift.migration.{AuditOutcome, AuditReport}
import org.apache.spark.sql.execution.streaming.state.binshift.routing.{AuditSample, RoutingEntry, RoutingTable}
import org.apache.spark.util.ThreadUtils

/**
 * Collects the results of the audits of one run of a query. If a bin isn't what its old owner had committed, this ends the query:
 * it cancels the query's jobs, and no further epoch is planned.
 *
 * Thread-safe; waits for nothing.
 *
 * @param sampled bins of each step that are audited; none if 0
 */
private[binshift] final class Audits(query: MicroBatchExecution, sampled: Int) extends Logging {
  import Audits._

  /** The audits of steps, by epoch, ascending. */
  private val steps = mutable.TreeMap.empty[Long, StepAudit]
  @volatile private var failed = Option.empty[BinshiftException]

  if (sampled > 0) AuditEndpoint.add(query.runId.toString, this)

  /** Called when the step of `entry` takes effect. Each of `stores` (operator and name) audits each bin that is drawn. */
  def expect(before: RoutingTable, entry: RoutingEntry, stores: => Seq[(Long, String)]): Unit = if (sampled > 0) synchronized {
    val bins = AuditSample.of(before, entry.table, entry.epoch, sampled)
    if (bins.nonEmpty) {
      steps(entry.epoch) = new StepAudit(entry.step.map(_.migration), bins, stores)
      if (steps.size > MaxSteps) steps -= steps.firstKey
    }
  }

  /** Called on a thread of Spark's network layer. Steps that an earlier run has planned are not counted. */
  def hear(report: AuditReport): Unit = {
    synchronized(steps.get(report.epoch).foreach(_.hear(report)))
    report.outcome match {
      case AuditOutcome.Differs(bin, key) if failed.isEmpty => fail(report, bin, key)
      case _ =>
    }
  }

  /** The error with which the query ends, if it does. */
  def failure: Option[BinshiftException] = failed

  /** Fails if an audit has found a difference. Called before an epoch is planned. */
  def requireNone(): Unit = failed.foreach(throw _)

  /** The results for a migration, over the steps that this run has taken. */
  def ofMigration(id: String): Option[AuditView] = sum(_.migration.contains(id))

  /** The results for the newest steps of the run. */
  def all: Option[AuditView] = sum(_ => true)

  def close(): Unit = AuditEndpoint.remove(query.runId.toString)

  private def sum(ofSteps: StepAudit => Boolean): Option[AuditView] = {
    lazy val executors = Executors.of(query.sparkSession.sparkContext)
    synchronized(steps.values.filter(ofSteps).map(_.view(executors.isThere(_))).reduceOption(_ + _))
  }

  private def failureOf(operator: Long, store: String, bin: Int, key: String, moved: Long): BinshiftException =
    BinshiftException("AUDIT_FAILED", "operator" -> operator, "bin" -> bin, "key" -> key, "epoch" -> (moved - 1)).migration(
      s"bin $bin of operator $operator, which moved at epoch $moved, is not what its old owner had committed: the first key that " +
        s"differs is $key in store $store; the last good epoch is ${moved - 1}; wind the checkpoint back to it before the query is " +
        "started again (docs/runbook.md, An audit has failed), and report this as a bug of binshift")

  private def fail(report: AuditReport, bin: Int, key: String): Unit = {
    val failure = failureOf(report.operator, report.store, bin, key, report.epoch)
    failed = Some(failure)
    logError(s"query ${query.id} is stopped, because an audit has failed", failure)
    // On a thread of its own, because it waits for Spark's scheduler.
    Cancelling.execute { () =>
      query.sparkSession.sparkContext.cancelJobGroupAndFutureJobs(query.runId.toString, failure.getMessage)
    }
  }
}

private object Audits {
  private val MaxSteps = 256
  private lazy val Cancelling = ThreadUtils.newDaemonCachedThreadPool("binshift-audit-failed", 4)
}

/**
 * The results of the audits of some steps. Each bin is counted once, however many stores have rows of it.
 *
 * @param drawn     bins that were to be audited
 * @param equal     bins that are what their old owners had committed
 * @param differing bins that are not
 * @param dropped   bins that can't be audited any more, by reason
 */
private[binshift] final case class AuditView(drawn: Int, equal: Int, differing: Int, dropped: Map[String, Int]) {
  def underWay: Int = drawn - equal - differing - dropped.values.sum

  def +(o: AuditView): AuditView = AuditView(drawn + o.drawn, equal + o.equal, differing + o.differing,
    (dropped.toSeq ++ o.dropped).groupMapReduce(_._1)(_._2)(_ + _))

  def toJson: JObject = ("drawn" -> drawn) ~ ("equal" -> equal) ~ ("differing" -> differing) ~ ("under_way" -> underWay) ~
    ("dropped" -> dropped)

  def text: String = Seq(
    Some(s"$equal of $drawn equal"),
    Option.when(differing > 0)(s"$differing DIFFERENT"),
    Option.when(underWay > 0)(s"$underWay under way"),
    Option.when(dropped.nonEmpty)(s"${dropped.values.sum} not audited")).flatten.mkString(", ")
}

private final class StepAudit(val migration: Option[String], bins: Set[Int], stores: Seq[(Long, String)]) {
  import AuditOutcome._

  private val outcomes = mutable.Map.empty[(Int, Long, String), AuditReport]
  private var over = Option.empty[AuditView]

  def hear(report: AuditReport): Unit = for (bin <- report.bins if bins(bin)) {
    val outcome = report.outcome match {
      case Differs(different, _) if different != bin => report.copy(outcome = Dropped("another bin differs"))
      case _ => report
    }
    outcomes((bin, report.operator, report.store)) = outcome
    over = None
  }

  def view(isAlive: String => Boolean): AuditView = over.getOrElse {
    val found = bins.toSeq.map(of(_, isAlive))
    val view = AuditView(bins.size, found.count(_.contains(Equal)), found.count(_.exists(_.isInstanceOf[Differs])),
      found.collect { case Some(Dropped(reason)) => reason }.groupMapReduce(identity)(_ => 1)(_ + _))
    if (view.underWay == 0) over = Some(view)
    view
  }

  /** `None` while the audit of the bin isn't over. */
  private def of(bin: Int, isAlive: String => Boolean): Option[AuditOutcome] = {
    val said = stores.map { case (operator, store) => outcomes.get((bin, operator, store)) }
    val known = said.flatten.map { report =>
      if (report.outcome == Begun && !isAlive(report.executor)) Dropped("its executor was lost") else report.outcome
    }
    known.collectFirst { case d: Differs => d }
      .orElse(known.collectFirst { case d: Dropped => d })
      .orElse(Option.when(known.size == said.size && known.forall(_ == Equal))(Equal))
  }
}
