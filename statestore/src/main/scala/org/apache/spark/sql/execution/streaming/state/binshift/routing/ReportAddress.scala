package org.apache.spark.sql.execution.streaming.state.binshift.routing

import java.nio.ByteBuffer
import java.util.Base64

import org.apache.spark.{SparkEnv, TaskContext}
import org.apache.spark.sql.execution.streaming.state.binshift.BinshiftConf
import org.apache.spark.util.CollectionAccumulator

/**
 * Tells stores where to send their reports: to an accumulator of Spark's. There is one per epoch, which travels to the tasks as a
 * local property of the epoch's jobs, and back with the result of each task. So the reports of a failed task are lost with it, and
 * those of all tasks have arrived before the epoch is committed.
 *
 * Relies on Spark: an accumulator that is deserialised in a task belongs to the task, and is merged into the driver's when the task
 * has succeeded. A task that ran twice, and succeeded twice, reports twice.
 *
 * @param keysWanted how many of its hottest keys each store should report
 */
private[sql] final case class ReportAddress(
    runId: String, epoch: Long, keysWanted: Int, accumulator: CollectionAccumulator[Array[Byte]]) {

  def render: String = {
    val bytes = SparkEnv.get.closureSerializer.newInstance().serialize(accumulator)
    val copy = new Array[Byte](bytes.remaining)
    bytes.get(copy)
    s"$runId:$epoch:$keysWanted:${Base64.getEncoder.encodeToString(copy)}"
  }
}

private[sql] object ReportAddress {
  /** The address for reports of `epoch` that the task's job carries. Jobs from threads of a foreign pool may not have one. */
  def ofTask(runId: String, epoch: Long): Option[CollectionAccumulator[Array[Byte]]] =
    hint(runId, epoch).map { case (_, accumulator) => deserialized(accumulator) }

  def keysWanted(runId: String, epoch: Long): Int = hint(runId, epoch).map(_._1).getOrElse(0)

  private def hint(runId: String, epoch: Long): Option[(Int, String)] =
    Option(TaskContext.get()).flatMap(c => Option(c.getLocalProperty(BinshiftConf.StatisticsHint)))
      .map(_.split(':')).collect {
        case Array(`runId`, e, keys, accumulator) if e.toLong == epoch => (keys.toInt, accumulator)
      }

  private def deserialized(text: String): CollectionAccumulator[Array[Byte]] =
    SparkEnv.get.closureSerializer.newInstance().deserialize[CollectionAccumulator[Array[Byte]]](
      ByteBuffer.wrap(Base64.getDecoder.decode(text)), Thread.currentThread.getContextClassLoader)
}
