package org.apache.spark.sql.execution.streaming.state.binshift.shipping

import java.util.concurrent.{ConcurrentHashMap, ScheduledFuture, TimeUnit}
import java.util.concurrent.atomic.AtomicBoolean

import scala.concurrent.duration.DurationInt
import scala.util.control.NonFatal

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path

import org.apache.spark.SparkEnv
import org.apache.spark.internal.Logging
import org.apache.spark.rpc.RpcTimeout
import org.apache.spark.sql.execution.streaming.state.binshift.{Faults, LogLine, OrWarn}
import org.apache.spark.sql.execution.streaming.state.binshift.storage.FilesHere
import org.apache.spark.util.RpcUtils

/**
 * The standbys of one query on this executor. Once in each interval, it tells the driver how far they have come, hears which
 * standbys are wanted, and has each of them follow the checkpoint. It does so at once when a standby has become complete or has failed,
 * because a partition that moves here may wait for that. It ends when the driver says so, or hasn't answered for a while.
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
  private val isSoon = new AtomicBoolean
  @volatile private var isEnded = false
  private lazy val turns: ScheduledFuture[_] =
    ShippingThreads.standbyTurns.scheduleWithFixedDelay(() => turn(isExtra = false), 0, conf.intervalMs, TimeUnit.MILLISECONDS)

  private def begin(): Unit = turns: Unit

  /** Makes a turn now, beside those of each interval. */
  private def turnSoon(): Unit = if (isSoon.compareAndSet(false, true)) ShippingThreads.standbyTurns.execute { () =>
    isSoon.set(false)
    turn(isExtra = true)
  }

  /** @param isExtra whether only stores are followed that are new */
  private def turn(isExtra: Boolean): Unit = if (!isEnded) {
    val goesOn =
      try {
        Faults.at("standby.turn")
        ask().fold(false) { answer =>
          unanswered = 0
          answer.order.foreach { next =>
            obey(next)
            // The report that the driver has got is of another order.
            turnSoon()
          }
          follow(answer.committed, isExtra)
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
    if (!goesOn) end()
  }

  private def ask(): Option[StandbyAnswer] = {
    val stores = order.stores.map(s => mine(s.root).store.progress)
    val report = StandbyReport(runId, SparkEnv.get.executorId, order.id, stores)
    StandbyAnswer.parse(driver.askSync[Array[Byte]](report.toBytes, Timeout))
  }

  private def obey(next: StandbyOrder): Unit = {
    val wanted = next.stores.map(_.root).toSet
    mine.filterNot { case (root, _) => wanted(root) }.foreach { case (root, followed) => drop(root, followed.store) }
    mine = next.stores.map { s =>
      s.root -> mine.getOrElse(s.root, {
          val store = new StandbyStore(new Path(s.root), s.partition, conf, hadoopConf)
          put(s.root, store)
          new Followed(store, conf.intervalMs, () => turnSoon())
        })
    }.toMap
    order = next
    logInfo(LogLine("standbys", "run" -> runId, "order" -> next.id, "stores" -> mine.size))
  }

  private def follow(committed: Long, isExtra: Boolean): Unit = {
    val now = System.nanoTime()
    order.stores.map(s => mine(s.root)).filter(f => f.isDue(committed, now) && (f.isNew || !isExtra)).foreach(_.begin(committed))
  }

  private def end(): Unit = {
    isEnded = true
    turns.cancel(false)
    keepers.remove(runId, this)
    mine.foreach { case (root, followed) => drop(root, followed.store) }
    mine = Map.empty
    logInfo(LogLine("standbys", "run" -> runId, "ended" -> true))
  }
}

private[sql] object StandbyStores extends OrWarn {
  /** The name of the driver's endpoint. */
  val EndpointName = "binshift-standbys"

  private val MaxUnanswered = 12
  private val Timeout = new RpcTimeout(10.seconds, "the driver's answer about standbys")

  private val keepers = new ConcurrentHashMap[String, StandbyStores]()
  private val stores = new ConcurrentHashMap[String, StandbyStore]()

  /** Begins to keep standbys of a run of a query on this executor, or asks the driver now if that has begun. */
  def begin(runId: String, conf: StandbyConf, hadoopConf: Configuration): Unit = {
    val made = new StandbyStores(runId, conf, hadoopConf)
    Option(keepers.putIfAbsent(runId, made)).fold(made.begin())(_.turnSoon())
  }

  /** Registers a standby. It replaces the standby of an earlier run of the query that may not know yet that its run has ended. */
  private[shipping] def put(root: String, store: StandbyStore): Unit = Option(stores.put(root, store)).foreach(_.close())

  private[shipping] def drop(root: String, store: StandbyStore): Unit = {
    stores.remove(root, store)
    orWarn(s"files of the standby of $root stay until this executor ends")(store.close())
  }

  /** The files that are here for a store that is about to be loaded on this executor. */
  private[binshift] def filesOf(root: String): FilesHere = () => Option(stores.get(root)).flatMap(_.begin())

  /**
   * A store, and when to follow it next. The flags are set by the turn, and by the thread that follows.
   *
   * @param onSettled called when the store is complete for the first time, or has failed
   */
  private final class Followed(val store: StandbyStore, budgetMs: Long, onSettled: () => Unit) {
    @volatile private var notBefore = System.nanoTime()
    @volatile private var isBehind = true
    @volatile private var seen = Option.empty[Long]
    /** True from the time when it is queued until it has run, because two threads must not write the same files. */
    @volatile private var isQueued = false

    /**
     * True if the store should be followed now. While a query waits for data, only maintenance uploads files, and it is soon
     * enough to fetch those with the next epoch.
     */
    def isDue(committed: Long, now: Long): Boolean = !isQueued && now - notBefore >= 0 && (isBehind || !seen.contains(committed))

    def isNew: Boolean = seen.isEmpty

    def begin(committed: Long): Unit = {
      isQueued = true
      seen = Some(committed)
      go()
    }

    private def go(): Unit = ShippingThreads.standbys.execute(() => run())

    private def run(): Unit = {
      var goesOn = false
      try {
        val (now, wasSettled) = (System.nanoTime(), store.progress.isSettled)
        val backOffMs = store.follow(budgetMs)
        val isSettled = store.progress.isSettled
        if (!wasSettled && isSettled) onSettled()
        isBehind = backOffMs > 0 || store.isFetching
        notBefore = now + TimeUnit.MILLISECONDS.toNanos(backOffMs)
        if (isBehind && (backOffMs == 0 || !isSettled)) {
          goesOn = true
          // Behind the others that wait for a thread. Somebody may wait for it, so a failure is not left to the next interval.
          if (backOffMs == 0) go()
          else ShippingThreads.standbyTurns.schedule((() => go()): Runnable, backOffMs, TimeUnit.MILLISECONDS): Unit
        }
      } catch { case NonFatal(e) => logWarning("a standby could not follow; it tries again at an epoch to come", e) }
      finally if (!goesOn) isQueued = false
    }
  }
}
