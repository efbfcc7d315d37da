package org.apache.spark.sql.execution.streaming.state.binshift.conversion

import org.apache.spark.sql.execution.streaming.state.binshift.Faults
import org.apache.spark.sql.execution.streaming.state.binshift.keys.{ColumnFamily, StoreBins}
import org.apache.spark.sql.execution.streaming.state.binshift.storage.{BinKeyedRocksDB, RocksDBArguments, RowForm, SwitchStats}
import org.apache.spark.sql.execution.streaming.state.{ByteArrayPair, RocksDB, StateStoreId}
import org.apache.spark.util.NextIterator

/**
 * Rewrites the state of a partition from the form of Spark's own RocksDB provider into the binned form.
 *
 * At the epoch of the takeover, the partition loads an empty database and fills it from its checkpoint. The checkpoint isn't
 * changed: versions up to that epoch are in Spark's form, and later ones are binned. The commit of an empty database uploads a
 * whole snapshot and no changelog, so no recovery from a binned version replays a changelog of the stock form. A task that fails
 * or runs twice does everything again from the same files.
 *
 * The number of bins is a multiple of the number of partitions, so the partition that has a key also owns the key's bin, unless
 * the key has changed on its way to the state (`ChangedKeys`). For operators whose keys can't change, the database refuses a row
 * whose bin is foreign, as always.
 *
 * @param epoch  the first binned epoch; the version to read was committed by the epoch before it
 * @param binsOf bins of the keys of this store
 * @param noteChangedKeys called for each key that has changed
 */
private[binshift] final class PartitionTakeover(
    val epoch: Long,
    store: StateStoreId,
    keys: StockKeys,
    binsOf: StoreBins,
    noteChangedKeys: () => Unit) {

  /** Fills `target`, which is empty, with the rows of version `epoch`. Called by the store's task. */
  def fill(target: BinKeyedRocksDB, checkpointId: Option[String], arguments: RocksDBArguments): SwitchStats = {
    val started = System.nanoTime()
    keys.specs.foreach { case (family, spec) => binsOf.register(family, spec) }
    var rows = 0L
    var bytes = 0L
    withStock(checkpointId, arguments) { stock =>
      // In the order in which the operator made them, so that they get the numbers that they have in partitions which are opened later.
      // Files of rows can only be taken in as they are if the numbers are the same.
      ColumnFamily.numbered(stock, arguments.useColumnFamilies).sortBy(_.number).map(_.family).foreach { family =>
        if (arguments.useColumnFamilies) target.createColFamilyIfAbsent(family.name, family.isInternal)
        ColumnFamily.each(rowsOf(stock, family, arguments.useColumnFamilies)) { row =>
          val key = row.key
          val values = RowForm.valuesOf(stock, family.name, key, row.value)
          target.bin = placeOf(binsOf.of(family.name)(keys.row(family.name, key)), target)
          target.putList(key, values, family.name)
          rows += 1
          bytes += key.length + values.iterator.map(_.length).sum
        }
        Faults.at("takeover.family", store.partitionId)
      }
    }
    SwitchStats(rowsAdopted = rows, bytesAdopted = bytes, adoptMs = (System.nanoTime() - started) / 1000000)
  }

  /** Spark's own provider keeps a key that has changed on its way in the partition of its rows. */
  private def placeOf(bin: Int, target: BinKeyedRocksDB): Int =
    if (target.owns(bin) || !binsOf.mayChangeKeys) bin
    else {
      noteChangedKeys()
      target.homeBin
    }

  /** A private copy of the partition in a temporary directory, in Spark's own form. */
  private def withStock(checkpointId: Option[String], arguments: RocksDBArguments)(body: RocksDB => Unit): Unit = {
    val own = arguments.inPrivate(s"binshift-takeover-op${store.operatorId}-part${store.partitionId}")
    val stock = new RocksDB(own.dfsRootDir, own.conf, own.localRootDir, own.hadoopConf, own.loggingId,
      own.useColumnFamilies, own.enableStateStoreCheckpointIds, own.partitionId, own.eventForwarder, own.uniqueId)
    try {
      stock.load(epoch, checkpointId, readOnly = true)
      body(stock)
    } finally stock.close()
  }

  private def rowsOf(
      stock: RocksDB, family: ColumnFamily, useColumnFamilies: Boolean): NextIterator[ByteArrayPair] =
    if (useColumnFamilies) stock.iterator(family.name) else stock.iterator()
}
