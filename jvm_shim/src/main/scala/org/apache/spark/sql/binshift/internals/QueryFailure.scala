package org.apache.spark.sql.binshift.internals

import scala.util.matching.Regex

import org.apache.spark.sql.execution.streaming.runtime.StreamExecution
import org.apache.spark.sql.execution.streaming.state.binshift.BinshiftException

/** The failures of binshift among those that Spark tells of. */
private[binshift] object QueryFailure {

  /** The binshift failure that ended the query, or else the plain fact that it has ended. */
  def ended(query: StreamExecution): BinshiftException =
    query.exception.flatMap(of).getOrElse {
      val why = query.exception.map(e => s" with an error: ${firstLine(e)}").getOrElse("")
      BinshiftException("QUERY_ENDED").migration(
        s"query ${query.id} has ended$why; start it again from its checkpoint and attach to the new query")
    }

  /** Failures in tasks reach the driver as text only, hence the search for the marker, which has no parameters. */
  def of(error: Throwable): Option[BinshiftException] =
    BinshiftException.find(error).orElse {
      Iterator.iterate(error)(_.getCause).takeWhile(_ != null).take(64)
        .flatMap(e => Option(e.getMessage)).flatMap(Marker.findFirstMatchIn(_)).nextOption()
        .map(m => new BinshiftException(m.group(1), Option(m.group(2)).getOrElse(""), Nil, m.group(3), error))
    }

  private val Marker: Regex = raw"\[binshift\.(\w+)(?:\.(\w+))?] ([^\n]*)".r

  private def firstLine(e: Throwable): String = String.valueOf(e.getMessage).linesIterator.nextOption().getOrElse("")
}
