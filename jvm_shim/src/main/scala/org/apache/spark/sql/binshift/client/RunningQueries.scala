package org.apache.spark.sql.binshift.client

import java.util.UUID

import scala.jdk.CollectionConverters._
import scala.util.Try

import org.apache.spark.sql.binshift.query.{EachQuery, QueryRouters}
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution
import org.apache.spark.sql.execution.streaming.state.binshift.BinshiftException

/**
 * The running queries of all sessions of an application.
 *
 * Relies on Spark: the state that all sessions of an application share lists its active queries.
 */
private[binshift] object RunningQueries {

  /**
   * Asks each query that uses binshift, ordered by name and id. The answer is `None` for a query whose checkpoint doesn't answer. It may
   * then be unknown whether that query uses binshift.
   *
   * @param question what `of` answers, see [[EachQuery]]
   */
  def ask[T](session: SparkSession, question: String, maxWaitMs: Long)(
      of: MicroBatchExecution => T): Seq[(MicroBatchExecution, Option[T])] = {
    def told(query: MicroBatchExecution) = Option.when(isRouted(query) || Try(AttachedQuery.of(query)).isSuccess)(of(query))
    EachQuery.ask(active(session), question, maxWaitMs)(told).flatMap {
      case (query, Some(answer)) => answer.get.map(told => query -> Some(told))
      case (query, None) => Some(query -> None)
    }
  }

  /**
   * Finds a query by its name, id or run id. A run id also finds a run that ended a moment ago.
   *
   * @throws BinshiftException if there is none, or several have the name, or it does not use binshift
   */
  def find(session: SparkSession, nameOrId: String): MicroBatchExecution = {
    val there = active(session)
    there.filter(q => q.name == nameOrId || q.id.toString == nameOrId || q.runId.toString == nameOrId) match {
      case Seq(one) => if (isRouted(one)) one else AttachedQuery.of(one)
      // So the client of a run that has just ended is told about its end.
      case Seq() if ended(nameOrId).isDefined => ended(nameOrId).get
      case Seq() =>
        val names = there.map(q => Option(q.name).getOrElse(q.id.toString)).mkString(", ")
        throw BinshiftException("QUERY_NOT_FOUND").configuration(
          s"no active query has the name or id '$nameOrId'; active are: ${if (names.isEmpty) "none" else names}")
      case several => throw BinshiftException("QUERY_AMBIGUOUS").configuration(
          s"several active queries have the name '$nameOrId'; give the id of one: ${several.map(_.id).mkString(", ")}")
    }
  }

  /** True if binshift has planned an epoch of the run. If so, no call has to ask the checkpoint. */
  private def isRouted(query: MicroBatchExecution): Boolean =
    QueryRouters.known(query.runId).exists(_.hasPlanned)

  private def ended(runId: String): Option[MicroBatchExecution] =
    Try(UUID.fromString(runId)).toOption.flatMap(QueryRouters.known).map(_.query)

  private def active(session: SparkSession): Seq[MicroBatchExecution] =
    session.sharedState.activeStreamingQueries.values.asScala.collect { case m: MicroBatchExecution => m }.toSeq
      .sortBy(q => (Option(q.name).getOrElse(""), q.id.toString))
}
