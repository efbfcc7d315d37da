package org.apache.spark.sql.execution.streaming.state.binshift.statistics

import java.io.{ByteArrayInputStream, ByteArrayOutputStream, DataInputStream, DataOutputStream}

import scala.collection.mutable

import org.apache.hadoop.io.WritableUtils.{readVInt, readVLong, writeVInt, writeVLong}

import org.apache.spark.SparkEnv
import org.apache.spark.sql.execution.streaming.state.StateStoreId

/**
 * The report of one store on its bins when it commits an epoch.
 *
 * @param size    rows of the whole store after the commit; `None` while bins that it owns are on their way
 * @param isSized whether Spark keeps count of rows; if not, only the numbers of reads and writes are meaningful
 * @param awaited the bins whose copies the store still waits for before the next step
 * @param bins    the bins that were touched
 * @param hotKeys the keys that were touched most, if they were asked for
 */
private[sql] final case class StoreReport(
    operator: Long, store: String, partition: Int, epoch: Long, executor: String, isSized: Boolean,
    size: Option[RowCounts], awaited: Int, bins: Seq[(Int, BinCount)], hotKeys: Seq[HotKey]) {

  /** The part of the report that the driver counts while the epoch runs. */
  def rows: StoreRows = StoreRows(operator, store, partition, epoch, isSized, size.map(_.rows), bins.iterator.map(_._2.keys).sum)

  def toBytes: Array[Byte] = {
    val bytes = new ByteArrayOutputStream()
    val out = new DataOutputStream(bytes)
    rows.write(out)
    out.writeUTF(executor)
    out.writeBoolean(size.isDefined)
    size.foreach { s =>
      writeVLong(out, s.rows)
      writeVLong(out, s.internal)
    }
    writeVInt(out, awaited)
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
    val of = StoreRows.read(in)
    StoreReport(of.operator, of.store, of.partition, of.epoch, in.readUTF(), of.isSized,
      Option.when(in.readBoolean())(RowCounts(readVLong(in), readVLong(in))), readVInt(in),
      Seq.fill(readVInt(in)) {
        readVInt(in) -> BinCount(readVLong(in), readVLong(in), readVLong(in), readVLong(in), readVLong(in),
          readVLong(in), readVLong(in), readVLong(in))
      },
      Seq.fill(readVInt(in))(HotKey(readVInt(in), in.readUTF(), readVLong(in), readVLong(in))))
  }

  /** The report of a store that has just been committed. */
  private[binshift] def of(
      id: StateStoreId, epoch: Long, counts: BinCounts, isSized: Boolean, size: Option[RowCounts], awaited: Int,
      hotKeys: Seq[HotKey]): StoreReport = {
    val bins = mutable.ArrayBuffer.empty[(Int, BinCount)]
    counts.foreachTouched((bin, count) => bins += bin -> count)
    StoreReport(id.operatorId, id.storeName, id.partitionId, epoch, SparkEnv.get.executorId, isSized, size,
      awaited, bins.toSeq, hotKeys)
  }
}

/**
 * The number of rows in a store, in families that users see, when it commits an epoch. It is the beginning of the store's report.
 *
 * @param total `None` while bins that the store owns are on their way, or while it hasn't counted its rows
 * @param added rows that the epoch has added, less those that it has removed
 */
private[sql] final case class StoreRows(
    operator: Long, store: String, partition: Int, epoch: Long, isSized: Boolean, total: Option[Long], added: Long) {

  private[statistics] def write(out: DataOutputStream): Unit = {
    writeVLong(out, operator)
    out.writeUTF(store)
    writeVInt(out, partition)
    writeVLong(out, epoch)
    out.writeBoolean(isSized)
    out.writeBoolean(total.isDefined)
    total.foreach(writeVLong(out, _))
    writeVLong(out, added)
  }
}

private[sql] object StoreRows {
  /** Reads only this part of a report. */
  def parse(report: Array[Byte]): StoreRows = read(new DataInputStream(new ByteArrayInputStream(report)))

  private[statistics] def read(
      in: DataInputStream): StoreRows = StoreRows(readVLong(in), in.readUTF(), readVInt(in), readVLong(in),
    in.readBoolean(), Option.when(in.readBoolean())(readVLong(in)), readVLong(in))
}
