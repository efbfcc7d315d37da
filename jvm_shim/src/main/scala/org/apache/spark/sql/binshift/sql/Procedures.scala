package org.apache.spark.sql.binshift.sql

import org.apache.spark.sql.Row
import org.apache.spark.sql.binshift.client.{Cut, Limits, Rescaler, Submitted}
import org.apache.spark.sql.binshift.internals.QueryFailure
import org.apache.spark.sql.binshift.migration.MigrationOptions
import org.apache.spark.sql.binshift.query.QueryRouters
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.streaming.state.binshift.BinshiftException
import org.apache.spark.sql.types._

/**
 * The procedures of `binshift.system`. They do what `Controller` does in Python, with its names, defaults and errors. Targets by
 * load exist only in Python; see docs/decisions/0110-planning-in-both-languages.md.
 */
private[sql] object Procedures {
  private val OfQuery = Parameter("query", StringType, "Name, id or run id of the running query.")
  private val Partitions = Parameter("partitions", IntegerType, "Number of state partitions, 1 to bins.")

  private val OfCut = Seq(
    optional("strategy", StringType,
      "all-at-once, fluid, batched:BINS, optimized:BINS or on-demand; by default a quarter " +
        "of the bins a step."),
    optional("gap", IntegerType, "Epochs that stay idle between two steps.", "0"))

  private val OfSubmission = Seq(
    optional("start_epoch", LongType, "No step takes effect before this epoch."),
    optional("place_on", ArrayType(StringType), "Ids of the executors that get partitions; by default all."),
    optional("prepare", BooleanType, "Whether bins are copied before their step takes effect.", "true"))

  private val OfLimits = Seq(
    optional("deadline", StringType,
      "When the last step has to be taken, from the acceptance of the plan on: '600 s', '10 min', '2 h' or '30 epochs'."),
    optional("on_timeout", StringType,
      "What happens then: finish goes on, keep takes no further step, rollback undoes those that were taken.", "'finish'"),
    optional("guard_longest_epoch_s", DoubleType,
      "Seconds after which an epoch is too long: no step is taken after it, and after three the migration is rolled back."))

  private val MigrationId = new StructType().add("migration_id", StringType, nullable = false)
  private val SubmittedPlan = MigrationId.add("partitions", IntegerType, nullable = false)
    .add("bins_moved", IntegerType, nullable = false).add("steps", IntegerType, nullable = false)

  private val MoveType = new StructType().add("bin", IntegerType, nullable = false)
    .add("source", IntegerType, nullable = false).add("target", IntegerType, nullable = false)
  private val Steps = new StructType().add("step", IntegerType, nullable = false)
    .add("partitions", IntegerType, nullable = false).add("bins_moved", IntegerType, nullable = false)
    .add("moves", ArrayType(MoveType, containsNull = false), nullable = false)

  private val Plan = new SystemProcedure("plan", "The steps of a rescale; nothing happens yet.",
    Seq(OfQuery, Partitions) ++ OfCut, Steps,
    (session, arguments) =>
      rescaler(session, arguments).plan(arguments.int("partitions"), cutOf(arguments)).plan.steps.zipWithIndex.map {
        case (step, i) =>
          Row(i + 1, step.partitions, step.moves.size, step.moves.map(m => Row(m.bin, m.source, m.target)))
      })

  private val Rescale = new SystemProcedure("rescale", "Changes the number of state partitions of a running query.",
    Seq(OfQuery, Partitions) ++ OfCut ++ OfSubmission ++ OfLimits, SubmittedPlan,
    (session, arguments) =>
      rowsOf(rescaler(session, arguments).rescale(arguments.int("partitions"), cutOf(arguments), optionsOf(arguments))))

  private val Rebalance = new SystemProcedure("rebalance",
    "Spreads bins evenly over partitions, and partitions over executors.",
    Seq(OfQuery, optional("by", StringType, "What is levelled: bins.", "'bins'"),
      optional("grow", BooleanType, "Whether executors without partitions get new ones.",
        "false")) ++ OfCut ++ OfSubmission ++ OfLimits,
    SubmittedPlan,
    (session, arguments) => {
      arguments.textOf("by").filter(_ != "bins").foreach(by => throw byLoad(by))
      rowsOf(rescaler(session, arguments).rebalance(arguments.flag("grow"), cutOf(arguments), optionsOf(arguments)))
    })

  private val Drain = new SystemProcedure("drain", "Has all partitions leave an executor before it is removed.",
    Seq(OfQuery, Parameter("executor", StringType, "Id of the executor.")) ++ OfSubmission, SubmittedPlan,
    (session, arguments) => rowsOf(rescaler(session, arguments).drain(arguments.text("executor"), optionsOf(arguments))))

  private val Cancel = new SystemProcedure("cancel", "Schedules no further step of a migration.",
    Seq(OfQuery, optional("migration_id", StringType, "The migration; by default the one under way.")), MigrationId,
    (session, arguments) => Seq(Row(rescaler(session, arguments).cancel(arguments.textOf("migration_id")))))

  private val RollBack = new SystemProcedure("rollback", "Undoes the steps of a migration, and takes no further one.",
    Seq(OfQuery, optional("migration_id", StringType, "The migration; by default the one under way, or else the newest.")),
    MigrationId, (session, arguments) => Seq(Row(rescaler(session, arguments).rollBack(arguments.textOf("migration_id")))))

  private val Savepoint = new SystemProcedure("savepoint", "Keeps the state of the newest committed epoch, to go back to it.",
    Seq(OfQuery, Parameter("name", StringType, "Up to 100 letters, digits, dots, dashes and underscores.")),
    new StructType().add("name", StringType, nullable = false).add("epoch", LongType, nullable = false),
    (session, arguments) => {
      val query = arguments.query(session)
      if (!query.isActive) throw QueryFailure.ended(query)
      val (_, made) = QueryRouters.of(query).savepoints.make(arguments.text("name"))
      Seq(Row(arguments.text("name"), made.values("epoch").asInstanceOf[BigInt].toLong))
    })

  val All: Map[String, SystemProcedure] =
    (Seq(Plan, Rescale, Rebalance, Drain, Cancel, RollBack, Savepoint) ++ ClientProcedures.All).map(p => p.name -> p).toMap

  private def rescaler(session: SparkSession, arguments: Arguments): Rescaler = new Rescaler(arguments.query(session))

  private def cutOf(arguments: Arguments): Cut = Cut(arguments.textOf("strategy"), arguments.int("gap"))

  private def optionsOf(arguments: Arguments): MigrationOptions = MigrationOptions(
    arguments.longOf("start_epoch"), arguments.flag("prepare"), arguments.texts("place_on"), vacate = None, places = Map.empty,
    deadline = Limits.deadline(arguments.textOf("deadline"), arguments.textOf("on_timeout")),
    guard = Limits.guard(arguments.doubleOf("guard_longest_epoch_s")))

  private def rowsOf(submitted: Submitted): Seq[Row] = {
    val plan = submitted.plan.plan
    Seq(Row(submitted.id, plan.target.partitions, plan.steps.map(_.moves.size).sum, plan.steps.size))
  }

  private def byLoad(by: String): BinshiftException =
    BinshiftException("BY_LOAD_IN_PYTHON", "name" -> "by", "value" -> by).plan(
      s"by '$by' is impossible in SQL, which only evens out the number of bins (by 'bins'); call " +
        s"binshift.attach(query).rebalance('$by') in Python, which also works through Spark Connect")

  private[sql] def optional(name: String, kind: DataType, comment: String, default: String = "NULL"): Parameter =
    Parameter(name, kind, comment, Some(default))
}
