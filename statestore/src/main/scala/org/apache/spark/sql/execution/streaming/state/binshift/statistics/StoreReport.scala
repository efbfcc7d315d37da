package org.apache.spark.sql.execution.streaming.state.binshift.statistics

import java.io.{ByteArrayInputStream, ByteArrayOutputStream, DataInputStream, DataOutputStream}

import scala.collection.mutable

import org.apache.hadoop.io.WritableUtils.{readVInt, readVLong, writeVInt, writeVLong}

import org.apache.spark.SparkEnv
import org.apache.spark.sql.execution.streaming.state.StateStoreId

/**
 * What one store reports about its bins when it commits an epoch.
 *
 * @param size   rows of the whole store after the commit; `None` while bins that it owns are on their way
 * @param isSized whether Spark keeps count of rows; if not, only the numbers of reads and writes are meaningful
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

  /** The report of a store that has just been committed. */
  private[binshift] def of(
      id: StateStoreId, epoch: Long, counts: BinCounts, isSized: Boolean, size: Option[RowCounts],
      hotKeys: Seq[HotKey]): StoreReport = {
    val bins = mutable.ArrayBuffer.empty[(Int, BinCount)]
    counts.foreachTouched((bin, count) => bins += bin -> count)
    StoreReport(id.operatorId, id.storeName, id.partitionId, epoch, SparkEnv.get.executorId, isSized, size,
      bins.toSeq, hotKeys)
  }
}
