package org.apache.spark.sql.binshift.sql

import java.util.UUID

import org.apache.spark.SPARK_VERSION
import org.apache.spark.sql.Row
import org.apache.spark.sql.binshift.client.AttachedQuery
import org.apache.spark.sql.binshift.internals.{JarVersion, QueryFailure, SparkInternals}
import org.apache.spark.sql.binshift.query.{QueryHandle, QueryRouters, Submissions}
import org.apache.spark.sql.execution.streaming.state.binshift.BinshiftException
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.types._

/**
 * The procedures that Python calls through Spark Connect, where it has no py4j. Answers are the same JSON that [[QueryHandle]] gives
 * to py4j, and statistics are the same bytes, so that both ways have one form.
 */
private[sql] object ClientProcedures {
  import Procedures.optional

  private val OfQuery = Parameter("query", StringType, "Name, id or run id of the running query.")

  private val Answer = new StructType().add("answer", StringType).add("packed", BinaryType)

  private val Submit = new SystemProcedure("submit", "Starts a plan that was made elsewhere.",
    Seq(OfQuery, Parameter("plan", StringType, "The plan, as MigrationPlan.to_json gives it."),
      optional("options", StringType, "How it is carried out, as JSON."),
      optional("id", StringType, "The migration's id. A plan with an id that was accepted before is not accepted again.")),
    new StructType().add("migration_id", StringType, nullable = false),
    (session, arguments) => {
      val query = arguments.query(session)
      val id = arguments.textOf("id").getOrElse(UUID.randomUUID().toString)
      // The id becomes part of file names.
      if (!id.matches("[A-Za-z0-9][A-Za-z0-9_-]{0,63}")) throw BinshiftException("INVALID_VALUE", "name" -> "id",
        "value" -> id).plan(
        s"id '$id' is impossible; give up to 64 letters, digits, - and _, of which the first is a letter or digit, such as a UUID")
      val options = arguments.textOf("options").getOrElse("""{"prepare": true, "place_on": []}""")
      if (!query.isActive) throw QueryFailure.ended(query)
      new Submissions(QueryRouters.of(query)).submit(id, arguments.text("plan"), options, outlivesDriver = false)
      Seq(Row(id))
    })

  private val Ask = new SystemProcedure("ask", "Asks a query a question, for a client of Spark Connect.",
    Seq(OfQuery, Parameter("question", StringType, "One of the questions of this version of binshift."),
      optional("argument", StringType, "The subject of the question, such as the id of a migration.")),
    Answer,
    (session, arguments) => {
      val query = arguments.query(session)
      val handle = new QueryHandle(query)
      def argument: String = arguments.text("argument")
      arguments.text("question") match {
        case "attach" =>
          AttachedQuery.of(query)
          json(handle.facts())
        case "facts" => json(handle.facts())
        case "require_active" =>
          handle.requireActive()
          json(null)
        case "has_begun" => json(handle.hasBegun().toString)
        case "routing" => json(handle.routing())
        case "placement" => json(handle.placement())
        case "planned_epoch" => json(handle.plannedEpoch())
        case "statistics" => Seq(Row(null, handle.statistics()))
        case "migration" => json(handle.currentMigration())
        case "progress" => json(handle.progress(argument))
        case "rollback" =>
          handle.rollBack(argument)
          json(null)
        case "savepoint" => json(handle.savepoint(argument))
        case "history" => json(arguments.textOf("argument").fold(handle.history())(handle.historyOf))
        case "sample_keys" => json(handle.sampleKeys(argument.toInt).toString)
        case "hot_keys" => json(handle.hotKeys(argument.toLong))
        case "recent_progress" => json(query.recentProgress.map(_.json).mkString("[", ",", "]"))
        case "last_progress" => json(Option(query.lastProgress).map(_.json).orNull)
        case other => throw BinshiftException("INVALID_VALUE", "name" -> "question", "value" -> other).configuration(
            s"question '$other' is unknown to binshift ${JarVersion.version}; install the same version on client and server")
      }
    })

  private val Version = new SystemProcedure("version", "The versions on the server, and whether its session is set up.",
    Nil,
    new StructType().add("binshift", StringType, nullable = false).add("spark", StringType, nullable = false)
      .add("provider", StringType, nullable = false).add("changelog", BooleanType, nullable = false),
    (session, _) => {
      val conf = session.sessionState.conf
      Seq(Row(JarVersion.version, SPARK_VERSION, conf.getConf(SQLConf.STATE_STORE_PROVIDER_CLASS),
          conf.getConfString(SparkInternals.ChangelogKey, "false").toBoolean))
    })

  val All: Seq[SystemProcedure] = Seq(Submit, Ask, Version)

  private def json(answer: String): Seq[Row] = Seq(Row(answer, null))
}
