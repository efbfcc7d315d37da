package org.apache.spark.sql.binshift.query

import scala.util.control.NonFatal

import org.json4s.{DefaultFormats, Formats, JNothing, JNull, JObject, JString, JValue}
import org.json4s.JsonDSL._
import org.json4s.jackson.JsonMethods.{compact, parse, render}

import org.apache.spark.sql.binshift.migration.Rollback
import org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution
import org.apache.spark.sql.execution.streaming.state.binshift.{BinshiftException, Faults, LogLine, OrWarn}
import org.apache.spark.sql.execution.streaming.state.binshift.checkpoint.ControlDir

/**
 * Serves the requests that other processes leave in the checkpoint.
 *
 * {{{
 *   binshift/requests/<id>.json   written by whoever asks, in one atomic step; deleted when it is answered
 *            answers/<id>.json    the newest are kept, 64 of them
 * }}}
 *
 * A request is served, then answered, then deleted. After a crash in between, it is served again, which changes nothing: the id of a
 * migration is that of the request, and cancelling twice has no effect. Anything wrong with a request goes into its answer, and
 * never fails the epoch. Whoever left a plan may delete its file again. If that happens while the plan is being accepted, the
 * migration is cancelled. So somebody who sees neither the file nor a migration can rely on that.
 *
 * Requests that were left while the query was stopped are served on the stream's thread, while the first epoch of a run is planned.
 * From then on, a thread of its own looks for requests ([[RequestPoller]]) and serves them as a client's thread would: a plan that it
 * submits begins with the epoch that is planned next, and questions are answered while the query waits for data.
 *
 * @param intervalMs time between two looks, if nobody has asked lately
 * @param secret     the secret with which requests have to be signed, if any
 */
private[binshift] final class RemoteRequests(
    query: MicroBatchExecution, dir: ControlDir, router: QueryRouter, intervalMs: Long, secret: Option[Array[Byte]])
  extends OrWarn {
  import RemoteRequests._

  private val signatures = secret.map(new SignedRequests(dir, query.id.toString, _))
  private val submissions = new Submissions(router)

  private val poller =
    new RequestPoller(s"binshift-requests-${query.runId}", intervalMs, () => query.isActive, () => serve(MaxPerLook))

  /**
   * Serves requests until `close`. Called once, on the stream's thread.
   *
   * @param servesNow whether the oldest existing requests are served at once, so that a plan begins with this epoch
   */
  def start(servesNow: Boolean): Unit = {
    if (servesNow) serve(MaxAtStart)
    poller.start()
  }

  /** Called when the query has ended. A request that is being served is finished. */
  def close(): Unit = poller.close()

  /** Serves existing requests, oldest first, but no more than `most`; returns whether there were any. */
  private def serve(most: Int): Boolean =
    orWarn(s"query ${query.id}: could not look for requests in ${dir.path}; the next look tries again", false) {
      // So that somebody who follows a migration by its files sees its end, even if no epoch is planned.
      router.snapshot()
      val left = dir.jsonFiles(Requests)
      // Otherwise they are left for the run that continues the query.
      val waiting = if (left.nonEmpty && router.place.isNewest) left else Nil
      waiting.take(most).foreach { id =>
        orWarn(s"query ${query.id}: request $id could not be served; the next look tries again")(if (query.isActive) answer(id))
      }
      if (waiting.nonEmpty) {
        dir.jsonFiles(Answers).dropRight(AnswersKept).foreach(id => dir.delete(fileOf(Answers, id)))
      }
      waiting.nonEmpty
    }

  private def answer(id: String): Unit = {
    val file = fileOf(Answers, id)
    // Read before it is served, because whoever left it may delete it meanwhile.
    val envelope =
      try if (signatures.isEmpty) None else dir.read(fileOf(Requests, id), MaxBytes)
      catch { case _: BinshiftException => None }
    if (!dir.exists(file)) {
      val outcome =
        try JObject("result" -> act(id))
        catch {
          case e: BinshiftException =>
            logWarning(LogLine("refused", "query" -> query.id, "request" -> id, "condition" -> e.condition,
                "message" -> e.detail))
            failure(e)
          case NonFatal(e) =>
            failure(BinshiftException.failure(s"request $id failed: $e; the driver's log has more", e))
        }
      val epoch = router.now.epoch
      dir.write(file, ("format" -> FormatVersion) ~ ("id" -> id) ~ ("epoch" -> epoch) ~ outcome)
      logInfo(LogLine("request", "query" -> query.id, "epoch" -> epoch.mkString, "request" -> id))
    }
    // A request that can't be read was not served. A served one has to be recorded before its file is deleted.
    for (s <- signatures; e <- envelope) s.done(id, e)
    dir.delete(fileOf(Requests, id))
  }

  private def failure(e: BinshiftException): JObject = JObject("error" -> (("kind" -> e.kind) ~
    ("condition" -> e.condition) ~ ("parameters" -> e.json) ~ ("message" -> e.detail)))

  private def act(id: String): JValue = {
    val request = read(id)
    val handle = new QueryHandle(query)
    text(request, "kind") match {
      case Some("submit") => submit(id, request)
      case Some("cancel") =>
        submissions.cancel(text(request, "migration_id"))
        JObject()
      case Some("rollback") =>
        // By default, a request that is served again would be about another migration.
        val migration = text(request, "migration_id").getOrElse(throw bad(id, "it names no migration_id to roll back"))
        "migration_id" -> submissions.rollBack(Some(migration))
      case Some("status") =>
        val s = router.snapshot()
        val underWay = s.migration.map(_.id)
        // No file mentions a migration that is over and took no step. One of these may be forgotten meanwhile.
        val known = underWay.toSeq ++ s.outcomes.map(_.id)
        def isKnown(id: String) = known.contains(id) || known.contains(Rollback.idOf(id))
        val asked = text(request, "migration_id").fold(underWay)(id => Option.when(isKnown(id))(id))
        val progress = asked.flatMap(MigrationProgress.find(router, _))
        ("migration_id" -> asked.fold[JValue](JNull)(JString(_))) ~
          ("progress" -> progress.fold[JValue](JNull)(_.toJson)) ~
          ("routing" -> Option(handle.routing()).map(parse(_)).getOrElse(JNull))
      case Some("placement") => parse(handle.placement())
      case Some("stats") => stats()
      case Some("settings") =>
        RunningSettings.of(query, router.now.tables.current.map(_.table), router.placement().executors.size)
      case other => throw bad(id,
          s"its kind is ${other.getOrElse("missing")}; known are submit, cancel, rollback, status, placement, stats and settings")
    }
  }

  private def stats(): JValue = {
    val s = router.statistics().getOrElse(throw BinshiftException("NO_EPOCH_COMMITTED").migration(
        s"query ${query.id} has not committed an epoch in this run, so it has no statistics yet; ask again"))
    ("epoch" -> s.epoch) ~ ("columns" -> s.toColumns)
  }

  private def read(id: String): JValue = {
    val json =
      try dir.read(fileOf(Requests, id), MaxBytes).getOrElse(JNothing)
      catch {
        case NonFatal(e) =>
          throw bad(id, s"it cannot be read (${BinshiftException.find(e).map(_.detail).getOrElse(e.getMessage)})")
      }
    implicit val formats: Formats = DefaultFormats
    if (!(json \ "format").extractOpt[Int].contains(FormatVersion)) {
      val format = compact(render(json \ "format"))
      throw bad(id, s"its format is $format; this binshift reads format $FormatVersion")
    }
    if (!text(json, "id").contains(id)) throw bad(id, "the id in it is not that of its file name")
    signatures match {
      case Some(s) => matching(id, s.opened(id, json))
      // The request is signed although it doesn't have to be.
      case None => text(json, SignedRequests.Signed).fold(json)(signed => matching(id, parse(signed)))
    }
  }

  private def matching(id: String, request: JValue): JValue =
    if (text(request, "id").contains(id)) request
    else throw bad(id, "the id that is signed is not that of its file name")

  private def submit(id: String, request: JValue): JValue = {
    val options = DefaultOptions.merge((request \ "options") match {
      case options: JObject => options
      case _ => JObject()
    })
    submissions.submit(id, compact(render(request \ "plan")), compact(render(options)), outlivesDriver = true)
    Faults.at("request.submitted")
    if (!dir.exists(fileOf(Requests, id))) {
      submissions.cancel(Some(id))
      throw BinshiftException("MIGRATION_CANCELLED", "migration_id" -> id).migration(
        s"request $id was withdrawn while query ${query.id} accepted it, so its migration is cancelled; give the command again " +
          "if that is not what you want")
    }
    "migration_id" -> id
  }

  private def text(json: JValue, field: String): Option[String] = {
    implicit val formats: Formats = DefaultFormats
    (json \ field).extractOpt[String]
  }

  private def bad(id: String, reason: String): BinshiftException =
    BinshiftException("REQUEST_UNREADABLE").configuration(
      s"this version of binshift does not understand request $id: $reason; write the request again")
}

private object RemoteRequests {
  private val FormatVersion = 1
  private val Requests = "requests"
  private val Answers = "answers"
  private val AnswersKept = 64

  /** The most requests that are served at a time: by the poller, and on the stream's thread. */
  private val MaxPerLook = 64
  private val MaxAtStart = 4

  /** The most bytes of a request. A plan for all possible bins, moved one by one, takes a few MB. */
  private val MaxBytes = 64L << 20

  private val DefaultOptions: JObject =
    ("start_epoch" -> JNull) ~ ("prepare" -> true) ~ ("place_on" -> Seq.empty[String]) ~ ("vacate" -> JNull) ~
      ("places" -> JObject())

  private def fileOf(folder: String, id: String): String = s"$folder/$id.json"
}
