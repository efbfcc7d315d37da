package org.apache.spark.sql.binshift.internals

import scala.util.matching.Regex

import org.apache.spark.sql.execution.streaming.runtime.StreamExecution
import org.apache.spark.sql.execution.streaming.sources.ForeachBatchSink
import org.apache.spark.sql.execution.streaming.state.binshift.BinshiftException

/** Finds the failures of binshift among those that Spark reports. */
private[binshift] object QueryFailure {

  /** The binshift failure that ended the query, or else an error that merely says that it has ended. */
  def ended(query: StreamExecution): BinshiftException =
    query.exception.flatMap(of).getOrElse {
      val why = query.exception.map(e => s" with an error: ${firstLine(e)}").getOrElse("")
      BinshiftException("QUERY_ENDED").migration(
        s"query ${query.id} has ended$why; start it again from its checkpoint and attach to the new query")
    }

  /** Why a run that has planned no epoch has no routing table, and what to do about it. */
  def notPlanned(query: StreamExecution): BinshiftException =
    if (!query.isActive) ended(query)
    else withoutState(query).getOrElse(BinshiftException("NO_EPOCH_PLANNED").migration(
        s"query ${query.id} has not planned its first epoch, so it has no routing table yet; feed it data, and ask again once it has " +
          "run an epoch; in Python, binshift.attach(query, timeout=60) waits for that"))

  /**
   * The error for a query that keeps no state, once that is known. Ask it about runs of which binshift has planned no epoch: if such
   * a run has done an epoch all the same, none of its operators has state. May be called from any thread.
   *
   * Relies on Spark: only the report of an epoch that was run says how long its `addBatch` took.
   */
  def withoutState(query: StreamExecution): Option[BinshiftException] =
    Option.when(query.recentProgress.exists(_.durationMs.containsKey("addBatch"))) {
      val advice =
        if (query.sink.isInstanceOf[ForeachBatchSink[_]]) {
          "an aggregation inside of foreachBatch starts from nothing in each epoch, because Spark runs it as a batch job; " +
            "if it should continue from epoch to epoch, aggregate the stream before writeStream"
        } else "it runs as on Spark's own provider; give it an aggregation, a join or another operator that keeps state"
      BinshiftException("NO_STATEFUL_OPERATOR").configuration(
        s"query ${query.id} has no stateful operator, so it has no state that could be rescaled: $advice")
    }

  /** Failures in tasks reach the driver only as text. So this searches for the marker, and parameters are lost. */
  def of(error: Throwable): Option[BinshiftException] =
    BinshiftException.find(error).orElse {
      Iterator.iterate(error)(_.getCause).takeWhile(_ != null).take(64)
        .flatMap(e => Option(e.getMessage)).flatMap(Marker.findFirstMatchIn(_)).nextOption()
        .map(m => new BinshiftException(m.group(1), Option(m.group(2)).getOrElse(""), Nil, m.group(3), error))
    }

  private val Marker: Regex = raw"\[binshift\.(\w+)(?:\.(\w+))?] ([^\n]*)".r

  private def firstLine(e: Throwable): String = String.valueOf(e.getMessage).linesIterator.nextOption().getOrElse("")
}
