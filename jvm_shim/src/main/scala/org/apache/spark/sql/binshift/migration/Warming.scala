package org.apache.spark.sql.binshift.migration

import java.util.concurrent.ThreadPoolExecutor

import scala.util.control.NonFatal

import org.apache.hadoop.conf.Configuration

import org.apache.spark.SparkEnv
import org.apache.spark.broadcast.Broadcast
import org.apache.spark.internal.Logging
import org.apache.spark.sql.binshift.internals.Broadcasts
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.streaming.state.StateStoreId
import org.apache.spark.sql.execution.streaming.state.binshift.shipping.{BackgroundConf, WarmStore}
import org.apache.spark.storage.BlockId
import org.apache.spark.util.{SerializableConfiguration, ThreadUtils}

/**
 * Makes executors fetch the files of partitions that are about to come to them.
 *
 * An executor that has just joined runs no task of the query, so a short job tells it about an order. From then on it fetches in the
 * background, and puts a block when the files are complete (see [[WarmStore]]). If anything goes wrong, the partition moves without
 * its files.
 *
 * Called under the lock of the run; the jobs run on a thread of their own.
 */
private[binshift] final class Warming(session: SparkSession) extends Logging {
  import Warming._

  private val context = session.sparkContext
  private val conf = BackgroundConf(session.sessionState.conf.getAllConfs)
  private var orders = Map.empty[(Int, String), Order]

  /** Orders the files of partitions, each for an executor. */
  def begin(targets: Seq[Target]): Unit = if (targets.nonEmpty) {
    val hadoopConf = context.broadcast(new SerializableConfiguration(session.sessionState.newHadoopConf()))
    val stores = for (t <- targets; store <- t.stores) yield (t, store)
    val order = new Order(hadoopConf, stores.zipWithIndex.groupMap { case ((t, _), _) => t.key }(_._2))
    orders ++= targets.map(_.key -> order)
    val wanted = stores.zipWithIndex.map { case ((t, store), place) =>
      WantedStore(t.executor, t.host, store.storeCheckpointLocation().toString, store.partitionId, place)
    }
    Jobs.execute(() =>
      try ask(order, wanted)
      catch {
        case NonFatal(e) =>
          logWarning(
            "files of partitions that move could not be fetched ahead; their new executors load them from the checkpoint", e)
          order.fail(wanted.map(_.executor))
      })
  }

  /** Returns those of the `wanted` partitions and executors that nobody needs to wait for. Asks for all blocks at once. */
  def ready(wanted: Set[(Int, String)]): Set[(Int, String)] = {
    val blocks = (for {
      (key, order) <- orders.toSeq if wanted(key) && !order.hasFailed(key._2)
      id <- order.blocks(key)
    } yield id -> key).toIndexedSeq
    if (blocks.isEmpty) wanted
    else {
      val locations = SparkEnv.get.blockManager.master.getLocations(blocks.map { case (id, _) => id }.toArray)
      wanted -- blocks.zip(locations).collect { case ((_, key), found) if found.isEmpty => key }
    }
  }

  def hasOrdered(partition: Int, executor: String): Boolean = orders.contains((partition, executor))

  /** Ends all orders, because nothing is wanted any more, or everything has arrived. */
  def close(): Unit = {
    val over = orders.values.toSeq.distinct
    orders = Map.empty
    over.foreach(order => Broadcasts.destroy(order.hadoopConf, context))
  }

  private def ask(order: Order, wanted: Seq[WantedStore]): Unit = {
    val byExecutor = wanted.groupBy(_.executor)
    val begun = ExecutorJob.run(context, "binshift: files of partitions that move are fetched ahead",
      byExecutor.map { case (executor, stores) => executor -> (stores.head.host -> stores) })(new Begin(order.hadoopConf, conf))
    order.fail((byExecutor.keySet -- begun).toSeq)
  }
}

private[binshift] object Warming {
  private lazy val Jobs: ThreadPoolExecutor = ThreadUtils.newDaemonCachedThreadPool("binshift-warming", 4)

  /** @param stores stores of the partition that have bins */
  final case class Target(partition: Int, executor: String, host: String, stores: Seq[StateStoreId]) {
    def key: (Int, String) = (partition, executor)
  }

  /** @param places positions of each partition's stores in the order */
  private final class Order(
      val hadoopConf: Broadcast[SerializableConfiguration], places: Map[(Int, String), Seq[Int]]) {
    @volatile private var failed = Set.empty[String]

    def fail(executors: Seq[String]): Unit = failed ++= executors

    def hasFailed(executor: String): Boolean = failed(executor)

    def blocks(key: (Int, String)): Seq[BlockId] = places.getOrElse(key, Nil).map(WarmStore.readyBlock(hadoopConf.id, _))
  }

  private final case class WantedStore(executor: String, host: String, root: String, partition: Int, place: Int)

  /** The task of each executor. */
  private final class Begin(hadoopConf: Broadcast[SerializableConfiguration], conf: BackgroundConf)
    extends ExecutorJob.Task[Seq[WantedStore]] {

    override def run(wanted: Seq[WantedStore]): Unit = wanted.foreach { s =>
      WarmStore.begin(s.root, s.partition, hadoopConf.id, s.place, conf, new Configuration(hadoopConf.value.value))
    }
  }
}
