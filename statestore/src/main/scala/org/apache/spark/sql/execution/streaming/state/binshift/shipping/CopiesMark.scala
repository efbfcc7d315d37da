package org.apache.spark.sql.execution.streaming.state.binshift.shipping

import scala.util.control.NonFatal

import org.apache.spark.internal.Logging
import org.apache.spark.storage.BlockId

/**
 * A block that says to the driver that all copies for a store are whole, and as new as a step wants them.
 *
 * Tasks say so with their metrics. Copies that become whole after the task's end, in a pause of the stream, would be heard of
 * an epoch later only. So the driver looks for the marks of all stores while an epoch is planned, if the last tasks still
 * waited. A mark is a message to the driver for each store and order; the block goes with the order's broadcast, or before.
 *
 * A mark that is wrong, as one of a store that has just left this executor, costs time: its bins are read from the checkpoint.
 *
 * Thread-safe.
 *
 * @param isReady whether the copies are whole now
 */
private[binshift] final class CopiesMark(id: BlockId, isReady: () => Boolean) extends Logging {
  private var isSet = false
  private var isClosed = false

  /** Copies have been brought on, or one has failed, or an epoch has begun. */
  def look(): Unit = synchronized {
    try {
      val isDue = !isClosed && isReady()
      if (isDue && !isSet) ShipmentBlocks.put(id, Array[Byte](0))
      if (!isDue && isSet) ShipmentBlocks.removeHere(id)
      isSet = isDue
    } catch {
      case NonFatal(e) => logWarning(s"$id cannot tell that copies are whole; the tasks of the next epoch do", e)
    }
  }

  def close(): Unit = synchronized {
    isClosed = true
    look()
  }
}
