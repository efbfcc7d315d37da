package org.apache.spark.sql.execution.streaming.state.binshift

import org.apache.spark.sql.execution.streaming.state.{RocksDB, StateStoreId}

/**
 * Reads bins of a partition from its checkpoint, as they were committed at a version.
 *
 * Opens a private copy of the partition in a temporary directory of the executor: the partition's own
 * executor is not involved, may be busy with a later version, and may be gone. Cost: loading the
 * partition's whole state, without the bins that it adopted since its last snapshot and that nobody asks for.
 * Called by the task that adopts; not thread-safe.
 *
 * @param source store of the partition to read from
 * @param spark  the arguments of the adopting database
 */
private[binshift] final class CheckpointedBins(
    source: StateStoreId, routing: EpochRouting, spark: RocksDBArguments) {

  /**
   * Calls `consume(family, key, values)` for each row of `bins`, family by family;
   * keys are in the form of [[BinKeyCodec]]. Values come without row checksum, since that covers
   * the family's number; with row checksums on, the values of one key come one by one.
   */
  def foreachRow(version: Long, bins: Seq[Int])(
      consume: (ColumnFamily, Array[Byte], List[Array[Byte]]) => Unit): Unit = at(version, bins) { db =>
    ColumnFamily.of(db, spark.useColumnFamilies).foreach { family =>
      ColumnFamily.foreachRow(db, family.name, bins) { row =>
        val key = row.key
        consume(family, key, CheckpointedBins.valuesOf(db, family, key, row.value))
      }
    }
  }

  /**
   * Calls `consume(step, family, key, value)` for each row of the bins of each step, step by step and
   * family by family, in the order of keys, with values as they are stored; before all, `begin` gets the
   * families.
   */
  def foreachStoredRow(version: Long, steps: Seq[(Int, Seq[Int])])(begin: Seq[NumberedFamily] => Unit)(
      consume: (Int, NumberedFamily, Array[Byte], Array[Byte]) => Unit): Unit = at(version, steps.flatMap(_._2)) { db =>
    val families = ColumnFamily.numbered(db, spark.useColumnFamilies)
    val native = RocksDBFields.native(db)
    begin(families)
    for ((step, bins) <- steps; family <- families) {
      family.foreachRow(native, native.getDefaultColumnFamily, bins) { (key, value) =>
        consume(step, family, java.util.Arrays.copyOfRange(key, family.prefix.length, key.length), value)
      }
    }
  }

  private def at(version: Long, bins: Seq[Int])(body: BinnedRocksDB => Unit): Unit = {
    val id = Option.when(spark.enableStateStoreCheckpointIds)(routing.checkpointIds(version).of(source))
    Faults.at("checkpoint.read", source.partitionId)
    val db = open(bins.toSet)
    try db.inStoredForm {
      db.load(version, id, readOnly = true, loadEmpty = false)
      body(db)
    } finally {
      db.close()
    }
  }

  private def open(bins: Set[Int]): BinnedRocksDB =
    new BinnedRocksDB(source, routing, isRouted = false, BackgroundConf(Map.empty[String, String]), None,
      spark.inPrivate(s"binshift-adopt-op${source.operatorId}-part${source.partitionId}")
        .copy(dfsRootDir = source.storeCheckpointLocation().toString, partitionId = source.partitionId),
      wanted = Some(bins))
}

private[binshift] object CheckpointedBins {
  /** The values of a row of `db`, as putting them again wants them: one by one where they carry checksums. */
  def valuesOf(
      db: RocksDB, family: ColumnFamily, key: Array[Byte], value: Array[Byte]): List[Array[Byte]] =
    if (db.conf.rowChecksumEnabled) {
      db.getMergedValues(key, family.name)
        .map(v => java.util.Arrays.copyOfRange(v.array, v.fromIndex, v.untilIndex)).toList
    } else {
      List(value)
    }
}
