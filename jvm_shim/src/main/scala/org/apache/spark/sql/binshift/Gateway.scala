package org.apache.spark.sql.binshift

import java.io.File

import scala.util.matching.Regex

import org.json4s.JValue
import org.json4s.JsonDSL._
import org.json4s.jackson.JsonMethods.{compact, render}

import org.apache.spark.sql.binshift.routing.{CommittedEpoch, QueryRouters, QueryStarts}
import org.apache.spark.sql.binshift.statistics.QueryStatistics
import org.apache.spark.sql.binshift.stock.{Conversion, ConversionOptions, TakeoverEpochs}
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.streaming.runtime.{MicroBatchExecution, StreamExecution, StreamingQueryWrapper}
import org.apache.spark.sql.execution.streaming.state.binshift.BinshiftException
import org.apache.spark.sql.execution.streaming.state.binshift.routing.RoutingEntry
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.streaming.StreamingQuery

/**
 * The whole of what Python calls, through py4j. Narrow on purpose: a call costs about a millisecond,
 * so each answers a whole question, as JSON. Failures are [[BinshiftException]]s.
 */
object Gateway {

  /** Version of the jar, to be compared with that of the Python package. */
  def version: String = Option(getClass.getPackage.getImplementationVersion).getOrElse("unknown")

  def requireSupportedVersion(sparkVersion: String): Unit =
    SparkInternals.requireSupportedVersion(sparkVersion)

  /**
   * Makes binshift active in a session, whether its jar was there before the session or came later.
   *
   * @param jar the jar's path, as the driver sees it; given to the executors unless they get one of its name anyway
   */
  def activate(session: SparkSession, jar: String): Unit = {
    SparkInternals.requireSupportedVersion()
    val name = new File(jar).getName
    if (!session.sparkContext.listJars().exists(_.endsWith(s"/$name"))) session.sparkContext.addJar(jar)
    BinshiftExtensions.activate(session)
  }

  def attach(query: StreamingQuery): QueryHandle = {
    SparkInternals.requireSupportedVersion()
    execution(query) match {
      case m: MicroBatchExecution =>
        if (!m.isActive) throw ended(m)
        requireBinshift(m)
        new QueryHandle(m)
      case other => throw BinshiftException("NOT_A_MICROBATCH_QUERY").configuration(
          s"query ${other.id} runs with trigger ${other.trigger}; only micro-batch queries can be rescaled")
    }
  }

  /** @param partitions 0 for as many as there are */
  def conversion(session: SparkSession, checkpoint: String, output: String, to: String, partitions: Int): Conversion = {
    SparkInternals.requireSupportedVersion()
    new Conversion(session, ConversionOptions(checkpoint, output, to, Option.when(partitions != 0)(partitions)))
  }

  private def execution(query: StreamingQuery): StreamExecution = query match {
    case w: StreamingQueryWrapper => w.streamingQuery
    case e: StreamExecution => e
    case other => throw BinshiftException("NOT_A_MICROBATCH_QUERY").configuration(
        s"${other.getClass.getName} is no query of this Spark session")
  }

  private def requireBinshift(query: MicroBatchExecution): Unit = {
    val wanted = query.sparkSession.sessionState.conf.getConf(SQLConf.STATE_STORE_PROVIDER_CLASS)
    val logged = SparkInternals.lastLogged(query).flatMap(_.providerClass)
    val used = logged.getOrElse(wanted)
    if (!SparkInternals.isBinshiftProvider(used) && TakeoverEpochs.of(query.runId).isEmpty) {
      val reason = if (SparkInternals.isBinshiftProvider(wanted)) {
        s"the checkpoint ${query.resolvedCheckpointRoot} was started with provider $used, and Spark keeps a " +
          s"checkpoint's provider whatever the session says; ${TakeoverEpochs.reasonAgainst(used)}"
      } else {
        s"query ${query.id} uses provider $used; start it in a session made with binshift.configure(builder)"
      }
      throw BinshiftException("PROVIDER_NOT_BINSHIFT", "provider" -> used).configuration(reason)
    }
    // Relies on Spark: `start` returns once the listeners have heard of the query.
    if (!QueryStarts.isSeen(query.runId)) throw QueryStarts.unseen(query)
  }

  /** The binshift failure that ended the query, or else the plain fact that it has ended. */
  private[binshift] def ended(query: StreamExecution): BinshiftException =
    query.exception.flatMap(failure).getOrElse {
      val why = query.exception.map(e => s" with an error: ${firstLine(e)}").getOrElse("")
      BinshiftException("QUERY_ENDED").migration(
        s"query ${query.id} has ended$why; start it again from its checkpoint and attach to the new query")
    }

  /** Failures in tasks reach the driver as text only, hence the search for the marker, which has no parameters. */
  private[binshift] def failure(error: Throwable): Option[BinshiftException] =
    BinshiftException.find(error).orElse {
      Iterator.iterate(error)(_.getCause).takeWhile(_ != null).take(64)
        .flatMap(e => Option(e.getMessage)).flatMap(Marker.findFirstMatchIn(_)).nextOption()
        .map(m => new BinshiftException(m.group(1), Option(m.group(2)).getOrElse(""), Nil, m.group(3), error))
    }

  private val Marker: Regex = raw"\[binshift\.(\w+)(?:\.(\w+))?] ([^\n]*)".r

  private def firstLine(e: Throwable): String = String.valueOf(e.getMessage).linesIterator.nextOption().getOrElse("")
}

/** One run of a query, for Python. All methods may be called from any thread. */
final class QueryHandle private[binshift] (query: MicroBatchExecution) {
  private val router = QueryRouters.of(query)
  private val statisticsOfRun = QueryStatistics.of(query)

  def requireActive(): Unit = if (!query.isActive) throw Gateway.ended(query)

  /** The table in force, or null while the query has not planned its first epoch. */
  def routing(): String = router.snapshot().tables.current.map(e => json(entryJson(e))).orNull

  /** Submits a plan with the options of [[MigrationOptions]]. Returns the migration's id. */
  def submit(plan: String, options: String): String = {
    requireActive()
    router.submit(plan, options).id
  }

  /** The live executors, those on which each partition is, and those that get none (see [[PlacementSnapshot]]). */
  def placement(): String = {
    requireActive()
    val p = router.placement()
    json(("executors" -> p.executors) ~ ("partitions" -> p.partitions) ~
      ("decommissioned" -> p.decommissioned) ~ ("leaving" -> p.leaving))
  }

  /** The statistics as of the last committed epoch (see [[StatisticsSnapshot]]), or null before the first. */
  def statistics(): Array[Byte] = statisticsOfRun.snapshot().map(_.toBytes).orNull

  /** Asks for the `n` hottest keys of the next epoch; returns what to give to [[hotKeys]]. */
  def sampleKeys(n: Int): Long = {
    requireActive()
    statisticsOfRun.sampleKeys(n)
  }

  /** The hottest keys of an epoch after `after`, or null until it is committed. */
  def hotKeys(after: Long): String = statisticsOfRun.sampledKeys(after).map(k => json(k.toJson)).orNull

  def cancel(id: String): Unit = {
    requireActive()
    router.cancel(id)
  }

  /** The migration under way as `{id, plan}`, or null. */
  def currentMigration(): String = {
    router.finishIfDone()
    router.snapshot().migration.map(m => json(("id" -> m.id) ~ ("plan" -> m.json))).orNull
  }

  /** Everything from which Python derives the state of migration `id`. */
  def progress(id: String): String = {
    val committed = CommittedEpoch.of(query)
    router.finishIfDone()
    val s = router.snapshot()
    val outcome = s.outcomes.find(_.id == id)
    json(
      ("ended" -> (outcome.isDefined || s.migration.exists(m => m.id == id && router.isOver(m)))) ~
        ("cancelled" -> (outcome.exists(_.cancelled) || s.migration.exists(m => m.id == id && m.cancelled))) ~
        ("steps_done" -> outcome.map(_.steps).getOrElse(s.tables.stepsCommitted(id, committed))) ~
        ("scheduled_epoch" -> s.tables.newestOf(id).filter(_ > committed)) ~
        ("earliest_epoch" -> s.migration.filter(_.id == id).flatMap(router.earliestEpoch)) ~
        ("committed_epoch" -> committed) ~
        ("bins_awaited" -> s.migration.filter(_.id == id).flatMap(router.binsAwaited)) ~
        ("forecast" -> router.forecast(id).map(_.toJson)) ~
        ("bins_given_up" -> s.migration.filter(_.id == id).map(router.binsGivenUp)) ~
        ("misplaced" -> s.migration.filter(_.id == id).map(_ => router.misplaced)) ~
        ("active" -> query.isActive) ~
        // Not isTriggerActive, which is also true while Spark looks for data in vain.
        ("idle" -> (s.planned.forall(_ <= committed) && !query.status.isDataAvailable)))
  }

  /** The steps that took effect, oldest first. */
  def history(): String = json(router.history().filter(_.step.exists(!_.isOpening)).map(e => entryJson(e)))

  private def entryJson(e: RoutingEntry): JValue =
    ("epoch" -> e.epoch) ~ ("bins" -> e.table.bins) ~ ("partitions" -> e.table.partitions) ~
      ("assignment" -> e.table.assignment.toSeq) ~ ("written_at" -> e.writtenAt) ~
      ("step" -> e.step.map { s =>
        ("migration_id" -> s.migration) ~ ("index" -> s.index) ~ ("steps" -> s.steps) ~
          ("strategy" -> s.strategy) ~ ("moves" -> s.moves)
      })

  private def json(value: JValue): String = compact(render(value))
}
