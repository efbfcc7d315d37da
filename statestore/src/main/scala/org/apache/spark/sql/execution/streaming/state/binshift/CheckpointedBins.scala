package org.apache.spark.sql.execution.streaming.state.binshift

import java.util.UUID

import org.apache.hadoop.conf.Configuration

import org.apache.spark.{SparkConf, SparkEnv}
import org.apache.spark.sql.execution.streaming.state.{RocksDB, RocksDBConf, StateStoreId}
import org.apache.spark.util.Utils

/**
 * Reads bins of a partition from its checkpoint, as they were committed at a version.
 *
 * Opens a private copy of the partition in a temporary directory of the executor: the partition's own
 * executor is not involved, may be busy with a later version, and may be gone. Cost: loading the
 * partition's whole state. Called by the task that adopts; not thread-safe.
 */
private[binshift] object CheckpointedBins {

  /**
   * Calls `consume(key, value)` for each row of `bins`, ascending by key; keys are in the form of
   * [[BinKeyCodec]], values without row checksum.
   */
  def foreachRow(
      source: StateStoreId, version: Long, bins: Seq[Int], conf: RocksDBConf, hadoopConf: Configuration)(
      consume: (Array[Byte], Array[Byte]) => Unit): Unit = {
    val sparkConf = Option(SparkEnv.get).map(_.conf).getOrElse(new SparkConf)
    val name = s"binshift-adopt-op${source.operatorId}-part${source.partitionId}"
    val db = new RocksDB(
      source.storeCheckpointLocation().toString, conf, Utils.createExecutorLocalTempDir(sparkConf, name),
      hadoopConf, loggingId = name, uniqueId = Some(s"$name-${UUID.randomUUID()}"))
    try {
      db.load(version, readOnly = true)
      ranges(bins).foreach { case (first, last) =>
        val rows = db.rangeScan(BinKeyCodec.lowerBound(first), BinKeyCodec.lowerBound(last + 1))
        try rows.foreach(row => consume(row.key, row.value)) finally rows.closeIfNeeded()
      }
    } finally {
      db.close()
    }
  }

  /** Runs of consecutive bins, as (first, last), so that neighbours cost one scan. */
  def ranges(bins: Seq[Int]): Seq[(Int, Int)] =
    bins.sorted.foldLeft(List.empty[(Int, Int)]) {
      case ((first, last) :: done, bin) if bin == last + 1 => (first, bin) :: done
      case (done, bin) => (bin, bin) :: done
    }.reverse
}
