package org.apache.spark.sql.binshift.stock

import org.apache.spark.{Partitioner, TaskContext}
import org.apache.spark.sql.execution.streaming.state.binshift.conversion.{DistinctKeys, Placed, StateRows, StoreForm}
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.streaming.state.StateStoreConf
import org.apache.spark.util.{LongAccumulator, SerializableConfiguration}

/**
 * Rewrites the state of a store, each key to the partition that Spark's own hash partitioning gives it. It runs as Spark jobs, with
 * a task for each partition that is written. If keys change their partition, there is also a task for each partition that is read,
 * and a shuffle in between, so that no task holds more than its share.
 *
 * A task that fails is tried again, and overwrites what it has written.
 */
private[binshift] final class StateRewrite(session: SparkSession, source: StoredCheckpoint, target: CheckpointCopy,
    from: StateStoreConf, to: StateStoreConf, partitions: Int, done: LongAccumulator) {

  /**
   * @param keys collects the keys that were checked, if a few of them prove nothing
   * @return the checkpoint id of each partition, under checkpoint format 2
   */
  def run(store: StoreForm, isMoved: Boolean, keys: Option[DistinctKeys]): Array[Option[String]] = {
    val version = source.epoch + 1
    val hadoopConf = SerializableConfiguration.broadcast(session.sparkContext, source.hadoopConf)
    val placement = Placed(partitions, Option.when(isMoved && source.layout.isEmpty)(source.partitions), keys)
    val read = StateRewrite.reader(store, source.stateRoot, from, hadoopConf, version, placement,
      IndexedSeq.tabulate(if (store.isSingle) 1 else source.partitions)(source.checkpointId(store, _)))
    val write = StateRewrite.writer(store, target.stateRoot, to, hadoopConf, version, target.claim, done)
    val context = session.sparkContext
    if (isMoved) {
      val rows = context.parallelize(0 until source.partitions, source.partitions).mapPartitions(_.flatMap(read))
      rows.partitionBy(new StateRewrite.AsGiven(partitions)).mapPartitions(rows => write(rows.map(_._2))).collect()
    } else {
      // State without grouping columns is in partition 0, and the others do not exist.
      val written = if (store.isSingle) 1 else partitions
      context.parallelize(0 until written, written)
        .mapPartitions(ids => write(ids.flatMap(read).map(_._2))).collect()
    }
  }
}

/** Here, so that closures carry only what tasks need. */
private object StateRewrite {
  type Conf = org.apache.spark.broadcast.Broadcast[SerializableConfiguration]

  def reader(store: StoreForm, stateRoot: String, conf: StateStoreConf, hadoopConf: Conf, version: Long,
      placed: Placed, ids: IndexedSeq[Option[String]]): Int => Iterator[(Int, Array[Byte])] =
    p => new StateRows(store, stateRoot, conf, hadoopConf.value.value).read(p, version, ids(p), placed)

  def writer(store: StoreForm, stateRoot: String, conf: StateStoreConf, hadoopConf: Conf, version: Long,
      claim: OutputClaim, done: LongAccumulator): Iterator[Array[Byte]] => Iterator[Option[String]] = rows => {
    val id = new StateRows(store, stateRoot, conf, hadoopConf.value.value)
      .write(TaskContext.getPartitionId(), version, rows, () => claim.require(hadoopConf.value.value))
    done.add(1)
    Iterator(id)
  }

  /** Takes the first element of a pair as its partition. */
  final class AsGiven(override val numPartitions: Int) extends Partitioner {
    override def getPartition(key: Any): Int = key.asInstanceOf[Int]
  }
}
