package org.apache.spark.sql.execution.streaming.state.binshift.shipping

import org.rocksdb.{RocksDB => NativeRocksDB}

import org.apache.spark.sql.execution.streaming.state.binshift.Faults
import org.apache.spark.sql.execution.streaming.state.binshift.keys.{BinKeyCodec, NumberedFamily}

/**
 * Reads the rows of bins from a version of a store and hands them to the writers of their new owners.
 *
 * Used by one thread.
 *
 * @param writers  by partition
 * @param required throws if nothing more is to be sent; called for each row
 */
private[shipping] final class BinSender(
    snapshot: NativeRocksDB,
    families: Seq[NumberedFamily],
    writers: Map[Int, ShipmentFormat.Writer],
    required: () => Unit) {

  /** Bytes of the rows that were sent. */
  var bytesRead = 0L

  /**
   * Sends bins of one part, a list for each new owner. Each family is read once for all of them, in the order of its keys, so that
   * no owner waits for another one.
   */
  def send(part: Int, bins: Map[Int, Seq[Int]]): Unit = {
    val writerOf = for ((target, all) <- bins; bin <- all) yield bin -> writers(target)
    families.zipWithIndex.foreach { case (family, position) =>
      val codec = BinKeyCodec.of(family.family.name)
      if (family.family.isReadInOrder) Faults.at("export.scan")
      each(family, writerOf.keys.toSeq) { (key, value) =>
        val stored = family.keyIn(key)
        writerOf(codec.binOf(stored)).write(part, position, stored, Faults.change("export.row", value))
      }
    }
  }

  private def each(family: NumberedFamily, bins: Seq[Int])(consume: (Array[Byte], Array[Byte]) => Unit): Unit =
    family.foreachRow(snapshot, snapshot.getDefaultColumnFamily, bins) { (key, value) =>
      required()
      consume(key, value)
      bytesRead += key.length + value.length
    }
}
