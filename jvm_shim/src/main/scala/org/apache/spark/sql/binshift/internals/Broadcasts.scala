package org.apache.spark.sql.binshift.internals

import org.apache.spark.broadcast.Broadcast
import org.apache.spark.sql.execution.streaming.state.binshift.{Faults, OrWarn}
import org.apache.spark.SparkContext

/** Destroys broadcast variables that are no longer needed. */
private[binshift] object Broadcasts extends OrWarn {

  /**
   * Destroys a broadcast variable that `context` has made. Never fails, so that everything else that ends with a run ends, too.
   *
   * Relies on Spark: a variable is destroyed by its number, in whichever context exists now. When a context is stopped, its
   * variables are gone, and the next context counts from 0 again.
   */
  def destroy(broadcast: Broadcast[_], context: SparkContext): Unit = if (!context.isStopped) {
    orWarn(s"$broadcast could not be destroyed, and stays until the application ends") {
      Faults.at("broadcast.destroy")
      broadcast.destroy()
    }
  }
}
