package org.apache.spark.sql.binshift.query

import java.util.UUID
import java.util.concurrent.ConcurrentHashMap

import org.apache.spark.sql.binshift.internals.LoggedBatch
import org.apache.spark.sql.execution.streaming.runtime.StreamExecution
import org.apache.spark.sql.execution.streaming.state.binshift.BinshiftException

/** Records what was observed when runs began. */
private[binshift] object QueryStarts {
  private val logged = new ConcurrentHashMap[UUID, Long]()
  private val seen = ConcurrentHashMap.newKeySet[UUID]()

  /** True if the beginning of a run was observed. If not, nothing here can be relied on. */
  def isSeen(runId: UUID): Boolean = seen.contains(runId)

  def unseen(query: StreamExecution): BinshiftException = BinshiftException("SESSION_WITHOUT_BINSHIFT").configuration(
    s"the session of query ${query.id} was made before binshift was active in this application; start the query in the " +
      "session that binshift.configure(builder).getOrCreate() gives, or in a newSession() of that")

  def saw(runId: UUID): Unit = seen.add(runId)

  /** The newest epoch in the log of offsets when the run started. The run itself may have logged more since. */
  def lastLogged(runId: UUID): Option[Long] = Option(logged.get(runId))

  def note(runId: UUID, last: LoggedBatch): Unit = logged.put(runId, last.epoch)

  def forget(runId: UUID): Unit = {
    logged.remove(runId)
    seen.remove(runId)
  }
}
