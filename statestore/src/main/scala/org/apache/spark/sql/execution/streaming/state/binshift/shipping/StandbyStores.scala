package org.apache.spark.sql.execution.streaming.state.binshift.shipping

import java.util.concurrent.{ConcurrentHashMap, TimeUnit}

import scala.concurrent.duration.DurationInt
import scala.util.control.NonFatal

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path

import org.apache.spark.SparkEnv
import org.apache.spark.internal.Logging
import org.apache.spark.rpc.RpcTimeout
import org.apache.spark.sql.execution.streaming.state.binshift.{Faults, LogLine}
import org.apache.spark.util.RpcUtils

/**
 * The standbys of one query on this executor. Once in each interval, it tells the driver how far they have come, hears which
 * standbys are wanted, and has each of them follow the checkpoint. It ends when the driver says so, or hasn't answered for a
 * while.
 *
 * Relies on Spark: an endpoint of the driver is found by its name, and each message is answered or fails.
 */
private[shipping] final class StandbyStores private (runId: String, conf: StandbyConf, hadoopConf: Configuration)
  extends Logging {
  import StandbyStores._

  private val driver = {
    val env = SparkEnv.get
    RpcUtils.makeDriverRef(EndpointName, env.conf, env.rpcEnv)
  }

  /** Only used by the turn, of which one runs at a time. */
  private var order = StandbyOrder(-1, IndexedSeq.empty)
  private var mine = Map.empty[String, Followed]
  private var unanswered = 0

  private def turn(): Unit = {
    val goesOn =
      try {
        Faults.at("standby.turn")
        ask().fold(false) { answer =>
          unanswered = 0
          answer.order.foreach(obey)
          follow(answer.committed)
          true
        }
      } catch {
        case NonFatal(e) =>
          unanswered += 1
          logDebug(s"the driver did not hear of the standbys of run $runId", e)
          unanswered < MaxUnanswered
        // Otherwise the failure would go unnoticed, and only standbys that have ended can begin again.
        case e: Throwable =>
          logError(s"the standbys of run $runId on this executor have stopped; the driver will start them again", e)
          end()
          throw e
      }
    if (goesOn) again(conf.intervalMs) else end()
  }

  private def ask(): Option[StandbyAnswer] = {
    val versions = order.stores.map(s => mine.get(s.root).fold(-1L)(_.store.reach))
    val report = StandbyReport(runId, SparkEnv.get.executorId, order.id, versions, mine.values.map(_.store.bytes).sum)
    StandbyAnswer.parse(driver.askSync[Array[Byte]](report.toBytes, Timeout))
  }

  private def obey(next: StandbyOrder): Unit = {
    val wanted = next.stores.map(_.root).toSet
    mine.filterNot { case (root, _) => wanted(root) }.foreach { case (root, followed) => drop(root, followed.store) }
    mine = next.stores.map { s =>
      s.root -> mine.getOrElse(s.root, {
          val store = new StandbyStore(new Path(s.root), s.partition, conf, hadoopConf)
          put(s.root, store)
          new Followed(store)
        })
    }.toMap
    order = next
    logInfo(LogLine("standbys", "run" -> runId, "order" -> next.id, "stores" -> mine.size))
  }

  private def follow(committed: Long): Unit = {
    val now = System.nanoTime()
    val due = mine.values.filter(_.isDue(committed, now))
    due.foreach { f =>
      f.begin(committed)
      ShippingThreads.standbys.execute(() => f.run(conf.intervalMs))
    }
  }

  private def again(ms: Long): Unit = ShippingThreads.standbyTurns.schedule((() => turn()): Runnable, ms, TimeUnit.MILLISECONDS)

  private def end(): Unit = {
    keepers.remove(runId, this)
    mine.foreach { case (root, followed) => drop(root, followed.store) }
    mine = Map.empty
    logInfo(LogLine("standbys", "run" -> runId, "ended" -> true))
  }
}

private[sql] object StandbyStores extends Logging {
  /** The name of the driver's endpoint. */
  val EndpointName = "binshift-standbys"

  private val MaxUnanswered = 12
  private val Timeout = new RpcTimeout(10.seconds, "the driver's answer about standbys")

  private val keepers = new ConcurrentHashMap[String, StandbyStores]()
  private val stores = new ConcurrentHashMap[String, StandbyStore]()

  /** Begins to keep standbys of a run of a query on this executor. A second call for the same run has no effect. */
  def begin(runId: String, conf: StandbyConf, hadoopConf: Configuration): Unit = {
    val made = new StandbyStores(runId, conf, hadoopConf)
    if (keepers.putIfAbsent(runId, made) == null) made.again(0)
  }

  /** Registers a standby. It replaces the standby of an earlier run of the query that may not know yet that its run has ended. */
  private[shipping] def put(root: String, store: StandbyStore): Unit = Option(stores.put(root, store)).foreach(_.close())

  private[shipping] def drop(root: String, store: StandbyStore): Unit = {
    stores.remove(root, store)
    try store.close()
    catch { case NonFatal(e) => logWarning(s"files of the standby of $root stay until this executor ends", e) }
  }

  private[shipping] def of(root: String): Option[StandbyStore] = Option(stores.get(root))

  /** A store, and when to follow it next. The flags are set by the turn, and by the thread that follows. */
  private final class Followed(val store: StandbyStore) {
    @volatile private var notBefore = System.nanoTime()
    @volatile private var isBehind = true
    @volatile private var seen = -2L
    /** True from the time when it is queued until it has run, because two threads must not write the same files. */
    @volatile private var isQueued = false

    /**
     * True if the store should be followed now. While a query waits for data, only maintenance uploads files, and it is soon
     * enough to fetch those with the next epoch.
     */
    def isDue(committed: Long, now: Long): Boolean = !isQueued && now - notBefore >= 0 && (isBehind || committed != seen)

    def begin(committed: Long): Unit = {
      isQueued = true
      seen = committed
    }

    def run(budgetMs: Long): Unit =
      try {
        val now = System.nanoTime()
        val backOffMs = store.follow(now + TimeUnit.MILLISECONDS.toNanos(budgetMs))
        notBefore = now + TimeUnit.MILLISECONDS.toNanos(backOffMs)
        isBehind = backOffMs > 0 || store.isFetching
      } finally isQueued = false
  }
}
