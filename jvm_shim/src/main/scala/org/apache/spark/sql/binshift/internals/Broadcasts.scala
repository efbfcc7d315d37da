package org.apache.spark.sql.binshift.internals

import scala.util.control.NonFatal

import org.apache.spark.broadcast.Broadcast
import org.apache.spark.internal.Logging
import org.apache.spark.sql.execution.streaming.state.binshift.Faults
import org.apache.spark.SparkContext

/** Broadcast variables that end with what they were made for. */
private[binshift] object Broadcasts extends Logging {

  /**
   * Destroys one that `context` has made; never fails, because what else ends with a run is to end, too.
   *
   * Relies on Spark: it is destroyed by its number, in whichever context there is now. A context that was stopped has
   * taken all of its own along, and the next one counts from 0 again.
   */
  def destroy(broadcast: Broadcast[_], context: SparkContext): Unit = if (!context.isStopped) {
    try {
      Faults.at("broadcast.destroy")
      broadcast.destroy()
    } catch {
      case NonFatal(e) => logWarning(s"$broadcast could not be destroyed, and stays until the application ends", e)
    }
  }
}
