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
 *
 * @param source       store of the partition to read from
 * @param checkpointId id with which the version was committed; `None` under checkpoint format 1
 */
private[binshift] final class CheckpointedBins(
    source: StateStoreId,
    checkpointId: Option[String],
    conf: RocksDBConf,
    hadoopConf: Configuration,
    useColumnFamilies: Boolean) {

  /**
   * Calls `consume(family, key, values)` for each row of `bins`, family by family;
   * keys are in the form of [[BinKeyCodec]]. Values come without row checksum, since that covers
   * the family's number; with row checksums on, the values of one key come one by one.
   */
  def foreachRow(version: Long, bins: Seq[Int])(
      consume: (ColumnFamily, Array[Byte], List[Array[Byte]]) => Unit): Unit = {
    val sparkConf = Option(SparkEnv.get).map(_.conf).getOrElse(new SparkConf)
    val name = s"binshift-adopt-op${source.operatorId}-part${source.partitionId}"
    val db = new RocksDB(
      source.storeCheckpointLocation().toString, conf, Utils.createExecutorLocalTempDir(sparkConf, name),
      hadoopConf, loggingId = name, useColumnFamilies = useColumnFamilies,
      enableStateStoreCheckpointIds = checkpointId.isDefined,
      uniqueId = Some(s"$name-${UUID.randomUUID()}"))
    try {
      db.load(version, checkpointId, readOnly = true)
      ColumnFamily.of(db, useColumnFamilies).foreach { family =>
        ColumnFamily.foreachRow(db, family.name, bins) { row =>
          val key = row.key
          consume(family, key, valuesOf(db, family, key, row.value))
        }
      }
    } finally {
      db.close()
    }
  }

  private def valuesOf(
      db: RocksDB, family: ColumnFamily, key: Array[Byte], value: Array[Byte]): List[Array[Byte]] =
    if (conf.rowChecksumEnabled) {
      db.getMergedValues(key, family.name)
        .map(v => java.util.Arrays.copyOfRange(v.array, v.fromIndex, v.untilIndex)).toList
    } else {
      List(value)
    }
}
