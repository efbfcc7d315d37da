package org.apache.spark.sql.execution.streaming.state.binshift.statistics

import java.io.{ByteArrayInputStream, ByteArrayOutputStream, DataInputStream, DataOutputStream}
import java.nio.ByteBuffer
import java.util.Base64

import scala.collection.mutable

import org.apache.hadoop.io.WritableUtils.{readVInt, readVLong, writeVInt, writeVLong}

import org.apache.spark.{SparkEnv, TaskContext}
import org.apache.spark.sql.execution.streaming.state.binshift.BinshiftConf
import org.apache.spark.sql.execution.streaming.state.binshift.storage.RowCounts
import org.apache.spark.sql.execution.streaming.state.StateStoreId
import org.apache.spark.util.CollectionAccumulator

/**
 * What one store says of its bins with the commit of an epoch.
 *
 * @param size   rows of the whole store after the commit; `None` while bins that it owns are on their way
 * @param isSized whether Spark keeps count of rows; if not, only reads and writes hold
 * @param bins   the bins that were touched
 * @param hotKeys the keys that were touched most, if they were asked for
 */
private[sql] final case class StoreReport(
    operator: Long, store: String, partition: Int, epoch: Long, executor: String, isSized: Boolean,
    size: Option[RowCounts], bins: Seq[(Int, BinCount)], hotKeys: Seq[HotKey]) {

  def toBytes: Array[Byte] = {
    val bytes = new ByteArrayOutputStream()
    val out = new DataOutputStream(bytes)
    writeVLong(out, operator)
    out.writeUTF(store)
    writeVInt(out, partition)
    writeVLong(out, epoch)
    out.writeUTF(executor)
    out.writeBoolean(isSized)
    out.writeBoolean(size.isDefined)
    size.foreach { s =>
      writeVLong(out, s.rows)
      writeVLong(out, s.internal)
    }
    writeVInt(out, bins.size)
    bins.foreach { case (bin, c) =>
      writeVInt(out, bin)
      Seq(c.reads, c.writes, c.keys, c.added, c.removed, c.rewritten, c.bytesAdded, c.bytesRewritten)
        .foreach(writeVLong(out, _))
    }
    writeVInt(out, hotKeys.size)
    hotKeys.foreach { k =>
      writeVInt(out, k.bin)
      out.writeUTF(k.key)
      writeVLong(out, k.operations)
      writeVLong(out, k.missing)
    }
    bytes.toByteArray
  }
}

private[sql] object StoreReport {
  def parse(bytes: Array[Byte]): StoreReport = {
    val in = new DataInputStream(new ByteArrayInputStream(bytes))
    StoreReport(readVLong(in), in.readUTF(), readVInt(in), readVLong(in), in.readUTF(), in.readBoolean(),
      Option.when(in.readBoolean())(RowCounts(readVLong(in), readVLong(in))),
      Seq.fill(readVInt(in)) {
        readVInt(in) -> BinCount(readVLong(in), readVLong(in), readVLong(in), readVLong(in), readVLong(in),
          readVLong(in), readVLong(in), readVLong(in))
      },
      Seq.fill(readVInt(in))(HotKey(readVInt(in), in.readUTF(), readVLong(in), readVLong(in))))
  }

  /** Of a store that has just been committed. */
  private[binshift] def of(
      id: StateStoreId, epoch: Long, counts: BinCounts, isSized: Boolean, size: Option[RowCounts],
      hotKeys: Seq[HotKey]): StoreReport = {
    val bins = mutable.ArrayBuffer.empty[(Int, BinCount)]
    counts.foreachTouched((bin, count) => bins += bin -> count)
    StoreReport(id.operatorId, id.storeName, id.partitionId, epoch, SparkEnv.get.executorId, isSized, size,
      bins.toSeq, hotKeys)
  }
}

/**
 * The way of reports to the driver: an accumulator of Spark's, one per epoch, which travels to the tasks as
 * a local property of the epoch's jobs, and back with the result of each task. So the reports of a task that
 * fails are lost with it, and those of all tasks are there before the epoch is committed.
 *
 * Relies on Spark: an accumulator that is deserialised in a task is the task's from then on, and is merged
 * into that of the driver when the task has succeeded. A task that ran twice, and succeeded twice, reports
 * twice.
 *
 * @param keysWanted how many of its hottest keys each store is to report
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
  /** Where the task's job wants reports of `epoch`; jobs from threads of a foreign pool may not say so. */
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
