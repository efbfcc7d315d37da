package binshift

import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.binshift.client.JvmController
import org.apache.spark.sql.streaming.StreamingQuery

/**
 * Rescales running queries from Scala and Java.
 *
 * {{{
 *   val controller = Binshift.attach(query)
 *   val plan = controller.plan(partitions = 8, strategy = "batched:64")
 *   val migration = controller.submit(plan)
 *   migration.status.state   // "preparing", "running", "finished" ...
 * }}}
 *
 * The session needs the jar and two settings, which docs/sql.md lists. Names, defaults and errors are those of the Python
 * package. Targets by load, bounds on steps and the autoscaler exist only in Python.
 *
 * All methods of the objects made here may be called from any thread. They throw
 * `org.apache.spark.sql.execution.streaming.state.binshift.BinshiftException`, whose `condition` tells what is wrong.
 */
object Binshift {

  /** Version of this jar. */
  def version: String = JvmController.version

  /** The controller of a running query of a classic session. */
  def attach(query: StreamingQuery): Controller = new Controller(JvmController.of(query))

  /**
   * The controller of a running query of the application, which any of its sessions may have started.
   *
   * @param nameOrId the query's name, id or run id
   */
  def attach(session: SparkSession, nameOrId: String): Controller = new Controller(JvmController.find(session, nameOrId))
}

/** Rescales one run of a query; made by [[Binshift.attach]]. */
final class Controller private[binshift] (jvm: JvmController) {

  /** Id of the query. */
  def id: String = jvm.id

  /** Number of bins, which is fixed for a checkpoint. */
  def bins: Int = jvm.bins

  /** Number of state partitions of the table in force. */
  def partitions: Int = jvm.partitions

  /** Owner of each bin in the table in force, indexed by bin. */
  def assignment: Array[Int] = jvm.assignment

  /** A plan whose steps move a quarter of the bins each. */
  def plan(partitions: Int): Plan = new Plan(jvm.plan(partitions, None, 0))

  /** @param strategy `all-at-once`, `fluid`, `batched:BINS`, `optimized:BINS` or `on-demand` */
  def plan(partitions: Int, strategy: String): Plan = plan(partitions, strategy, 0)

  /**
   * A plan from the table in force to one of `partitions` partitions; nothing happens yet.
   *
   * @param gap epochs that stay idle between two steps
   */
  def plan(partitions: Int, strategy: String, gap: Int): Plan = new Plan(jvm.plan(partitions, Some(strategy), gap))

  /** Starts a plan whose bins are copied before their step takes effect. */
  def submit(plan: Plan): Migration = submit(plan, prepare = true)

  /** @param prepare whether bins are copied to their new owners before their step takes effect */
  def submit(plan: Plan, prepare: Boolean): Migration = new Migration(jvm, jvm.submit(plan.json, prepare))

  /**
   * @param deadline  when the last step has to be taken, from the acceptance of the plan on: `600 s`, `10 min`, `2 h`, `30 epochs`
   * @param onTimeout what happens then: `finish` goes on, `keep` takes no further step, `rollback` undoes those that were taken
   */
  def submit(plan: Plan, prepare: Boolean, deadline: String, onTimeout: String): Migration =
    new Migration(jvm, jvm.submit(plan.json, prepare, Option(deadline), Option(onTimeout)))

  /** Starts a plan that was made elsewhere, as JSON of Python's `MigrationPlan.to_json`. */
  def submit(planJson: String): Migration = new Migration(jvm, jvm.submit(planJson, prepare = true))

  /** Plans and submits. */
  def rescale(partitions: Int): Migration = submit(plan(partitions))

  /** Empties an executor before it is removed: its partitions move to others as a whole. */
  def drain(executor: String): Migration = new Migration(jvm, jvm.drain(executor))

  /** The migration under way, also one that an earlier run of the query left. */
  def migration: Option[Migration] = jvm.migration.map(new Migration(jvm, _))
}

/** An ordered list of steps from one routing table to another. A value: nothing happens until it is submitted. */
final class Plan private[binshift] (made: JvmController.Planned) {

  /** The plan in the form that Python's `MigrationPlan.from_json` reads. */
  def json: String = made.json

  /** Number of steps. */
  def steps: Int = made.steps

  /** Number of bins that move. */
  def binsMoved: Int = made.binsMoved

  override def toString: String = s"Plan: ${made.summary}"
}

/** A submitted plan on its way through a running query. It continues even if this object, or the driver, is gone. */
final class Migration private[binshift] (jvm: JvmController, val id: String) {

  /** The present state of the migration. */
  def status: MigrationStatus = jvm.status(id)

  /**
   * Schedules no further step. A step that is scheduled already still takes effect, and a migration that has finished stays
   * finished.
   */
  def cancel(): Unit = jvm.cancel(id)

  /**
   * Takes no further step, and undoes those that were taken, the last one first. A migration that is over can be undone, too, as long
   * as no other one has changed the routing table since.
   */
  def rollback(): Unit = jvm.rollBack(id)

  override def toString: String = s"Migration $id: $status"
}

/**
 * A migration at one moment.
 *
 * @param state          `waiting`, `preparing`, `running`, `finished`, `cancelled`, `stopped`, `rolling-back` or `rolled-back`
 * @param stepsDone      steps whose epochs have been committed, also if they were undone since
 * @param nextEpoch      epoch at which a step is scheduled that is not committed yet
 * @param committedEpoch newest committed epoch of the query, -1 if there is none
 */
final case class MigrationStatus(state: String, stepsDone: Int, nextEpoch: Option[Long], committedEpoch: Long) {

  /** True if nothing more will happen, unless somebody rolls it back. */
  def isOver: Boolean = state == "finished" || state == "cancelled" || state == "rolled-back"
}
