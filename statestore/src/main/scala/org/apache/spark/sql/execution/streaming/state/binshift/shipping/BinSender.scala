package org.apache.spark.sql.execution.streaming.state.binshift.shipping

import org.rocksdb.{RocksDB => NativeRocksDB}

import org.apache.spark.sql.execution.streaming.state.binshift.Faults
import org.apache.spark.sql.execution.streaming.state.binshift.keys.{BinKeyCodec, NumberedFamily}
import org.apache.spark.sql.execution.streaming.state.binshift.statistics.RowCounts

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
   * Sends bins of one part, a list for each new owner. A family in which bins are ranges is read bin by bin, another one once
   * for all of them.
   *
   * @param removed hears of each native key of a family that is read in order, in the order of keys
   * @return rows that were sent
   */
  def send(part: Int, bins: Map[Int, Seq[Int]], removed: RemovedKeys = RemovedKeys.Unheard): RowCounts =
    RowCounts.sum(families.zipWithIndex.map { case (family, position) =>
      if (family.family.isReadInOrder) sendInOrder(part, bins, family, position, removed)
      else RowCounts.sum(bins.toSeq.sortBy(_._1).map { case (target, all) =>
        each(family, all)((key, value) => writers(target).write(part, position, family.keyIn(key), value))
      })
    })

  private def sendInOrder(
      part: Int, bins: Map[Int, Seq[Int]], family: NumberedFamily, position: Int, removed: RemovedKeys): RowCounts = {
    Faults.at("export.scan", part)
    val codec = BinKeyCodec.of(family.family.name)
    val targets = for ((target, all) <- bins; bin <- all) yield bin -> target
    val rows = each(family, targets.keys.toSeq) { (key, value) =>
      writers(targets(codec.binOf(key))).write(part, position, family.keyIn(key), value)
      removed.add(key)
    }
    removed.endFamily()
    rows
  }

  private def each(family: NumberedFamily, bins: Seq[Int])(consume: (Array[Byte], Array[Byte]) => Unit): RowCounts = {
    var n = 0L
    family.foreachRow(snapshot, snapshot.getDefaultColumnFamily, bins) { (key, value) =>
      required()
      consume(key, value)
      n += 1
      bytesRead += key.length + value.length
    }
    RowCounts.of(family.family.isInternal, n)
  }
}
