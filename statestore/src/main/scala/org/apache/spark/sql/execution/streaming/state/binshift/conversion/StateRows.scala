package org.apache.spark.sql.execution.streaming.state.binshift.conversion

import java.nio.ByteBuffer
import java.util.UUID

import scala.collection.mutable.ArrayBuffer

import org.apache.hadoop.conf.Configuration

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.runtime.StreamExecution
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.execution.streaming.state.binshift.{BinshiftException, Faults}
import org.apache.spark.sql.execution.streaming.state.binshift.keys.{ColumnFamily, FamilyRegistration}
import org.apache.spark.TaskContext

/**
 * Reads and writes whole partitions of a store in the tasks of an offline conversion, through any provider.
 *
 * @param form      the store
 * @param stateRoot the checkpoint's directory of state
 * @param conf      names the provider
 */
private[sql] final class StateRows(form: StoreForm, stateRoot: String, conf: StateStoreConf, hadoopConf: Configuration) {
  private val families = form.families.toIndexedSeq

  /** The keys of a partition with all their values, encoded by [[StateRow]], each with its partition by Spark's hash partitioning. */
  def read(partition: Int, version: Long, checkpointId: Option[String], placed: Placed): Iterator[(Int, Array[Byte])] = {
    val provider = open(StateStoreProvider.create(conf.providerClass), partition)
    val task = Option(TaskContext.get())
    // Listeners are called in reverse order.
    task.foreach(_.addTaskCompletionListener[Unit](_ => provider.close()))
    val store = provider.getReadStore(version, checkpointId)
    task.foreach(_.addTaskCompletionListener[Unit](_ => store.release()))
    val there = provider match {
      case p: RocksDBStateStoreProvider => ColumnFamily.of(p.rocksDB, form.useColumnFamilies).map(_.name).toSet
      case _ => Set(StateStore.DEFAULT_COL_FAMILY_NAME)
    }
    val targets = form.placing(placed.partitions)
    val origins = placed.before.map(form.placing)
    val keys = placed.keys.map(_.ofTask(form.placing(DistinctKeys.Hashes)))
    families.iterator.zipWithIndex.filter { case (f, _) => !form.useColumnFamilies || there(f.name) }.flatMap { case (f, i) =>
      if (form.useColumnFamilies && f.name != StateStore.DEFAULT_COL_FAMILY_NAME) {
        FamilyRegistration.register(store, f.name, f.keySchema, f.valueSchema, f.spec, f.isMultiValued, f.isInternal)
      }
      if (form.isUnused(f)) Iterator.empty
      else grouped(WholeStore.rows(store, f.name, f.isMultiValued)).map {
        case (key, values) =>
          if (origins.exists(_.of(f.name)(key) != partition)) throw misplaced(partition)
          keys.foreach(_.found(f.name, key))
          (if (form.isSingle) partition else targets.of(f.name)(key)) -> StateRow.encode(i, key, values)
      }
    }
  }

  /**
   * Writes a partition from scratch, as a whole snapshot of `version`.
   *
   * @param requireOwn fails if somebody else has taken over the output meanwhile
   * @return the checkpoint id under which it is committed, under checkpoint format 2
   */
  def write(partition: Int, version: Long, rows: Iterator[Array[Byte]], requireOwn: () => Unit): Option[String] = {
    val provider = open(WholeStore.provider(conf), partition)
    try {
      val store = WholeStore.empty(provider, version - 1)
      try {
        if (form.useColumnFamilies) families.filter(_.name != StateStore.DEFAULT_COL_FAMILY_NAME).foreach { f =>
          store.createColFamilyIfAbsent(f.name, f.keySchema, f.valueSchema, f.spec, f.isMultiValued, f.isInternal)
        }
        rows.foreach { bytes =>
          val (f, key, values) = StateRow.decode(bytes, families)
          if (f.isMultiValued) store.putList(key, values, f.name) else store.put(key, values.head, f.name)
        }
        Faults.at("convert.partition", partition)
        requireOwn()
        store.commit()
        store.getStateStoreCheckpointInfo().stateStoreCkptId
      } finally if (!store.hasCommitted) store.abort()
    } finally provider.close()
  }

  private def misplaced(partition: Int): BinshiftException = BinshiftException.unsupportedOperator(
    s"operator ${form.operator} has a key in partition $partition that Spark's hash of the key puts elsewhere: the keys " +
      "of its state differ from the columns by which Spark distributes its rows, so that its number of partitions " +
      "cannot change; leave out --partitions")

  private def open(provider: StateStoreProvider, partition: Int): StateStoreProvider = {
    val own = families.find(_.name == StateStore.DEFAULT_COL_FAMILY_NAME).getOrElse(families.head)
    val spec = if (form.useColumnFamilies) NoPrefixKeyStateEncoderSpec(own.keySchema) else own.spec
    val schemas = Option.when(form.schemaFiles.nonEmpty)(new InMemoryStateSchemaProvider(
        StateSchemaMetadata.createStateSchemaMetadata(stateRoot, hadoopConf, form.schemaFiles.toList)))
    hadoopConf.set(StreamExecution.RUN_ID_KEY, UUID.randomUUID().toString)
    provider.init(StateStoreId(stateRoot, form.operatorId, partition, form.storeName), own.keySchema, own.valueSchema, spec,
      form.useColumnFamilies, conf, hadoopConf, useMultipleValuesPerKey = false, schemas)
    provider
  }

  /** The values of one key follow one another. */
  private def grouped(rows: Iterator[UnsafeRowPair]): Iterator[(UnsafeRow, Seq[UnsafeRow])] =
    new Iterator[(UnsafeRow, Seq[UnsafeRow])] {
      private var ahead = advance()

      override def hasNext: Boolean = ahead.isDefined

      override def next(): (UnsafeRow, Seq[UnsafeRow]) = {
        val (key, first) = ahead.get
        val values = ArrayBuffer(first)
        ahead = advance()
        while (ahead.exists(_._1 == key)) {
          values += ahead.get._2
          ahead = advance()
        }
        (key, values.toSeq)
      }

      private def advance(): Option[(UnsafeRow, UnsafeRow)] = Option.when(rows.hasNext) {
        val pair = rows.next()
        (pair.key.copy(), pair.value.copy())
      }
    }
}

/**
 * @param partitions number of partitions to which the keys are distributed
 * @param before     number of partitions over which the same rule distributes the keys now, if that should be checked
 * @param keys       collects the keys that were checked, if a few of them prove nothing
 */
private[sql] final case class Placed(partitions: Int, before: Option[Int], keys: Option[DistinctKeys])

/**
 * A key and its values as bytes, for the shuffle.
 *
 * {{{
 *   family (2 bytes) | number of values (4) | length (4), key | length (4), value | ...
 * }}}
 */
private object StateRow {
  def encode(family: Int, key: UnsafeRow, values: Seq[UnsafeRow]): Array[Byte] = {
    val rows = key +: values
    val out = ByteBuffer.allocate(6 + rows.iterator.map(4 + _.getSizeInBytes).sum)
    out.putShort(family.toShort).putInt(values.size)
    rows.foreach(r => out.putInt(r.getSizeInBytes).put(r.getBytes))
    out.array
  }

  def decode(bytes: Array[Byte], families: IndexedSeq[FamilyForm]): (FamilyForm, UnsafeRow, Array[UnsafeRow]) = {
    val in = ByteBuffer.wrap(bytes)
    val family = families(in.getShort)
    val n = in.getInt()
    val key = row(in, family.keySchema.length)
    (family, key, Array.fill(n)(row(in, family.valueSchema.length)))
  }

  private def row(in: ByteBuffer, fields: Int): UnsafeRow = {
    val bytes = new Array[Byte](in.getInt)
    in.get(bytes)
    val made = new UnsafeRow(fields)
    made.pointTo(bytes, bytes.length)
    made
  }
}
