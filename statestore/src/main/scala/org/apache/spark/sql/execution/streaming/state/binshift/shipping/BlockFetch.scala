package org.apache.spark.sql.execution.streaming.state.binshift.shipping

import java.util.concurrent.{ConcurrentHashMap, ExecutionException, FutureTask, TimeUnit, TimeoutException}
import java.util.concurrent.atomic.AtomicBoolean

import org.apache.spark.storage.{BlockId, BlockManagerId}

/**
 * A block on its way from another executor. If that executor doesn't answer, Spark waits until its own timeouts are over, which takes
 * minutes. So a fetch has a thread of its own, and the caller that began it waits only for a moment.
 */
private[binshift] final class BlockFetch private (val id: BlockId, task: FutureTask[Array[Byte]]) {
  /**
   * The block, or `None` while it is on its way.
   *
   * @throws java.lang.Throwable if the fetch failed with it
   */
  def outcome: Option[Array[Byte]] =
    try Option.when(task.isDone)(task.get())
    catch { case e: ExecutionException => throw e.getCause }
}

private[binshift] object BlockFetch {
  /** The most blocks on their way from one executor, because each holds a thread: twice the number that is requested at a time. */
  val MostOfAnExecutor = 2 * ShippingThreads.Followed

  /** Longer than a slow network takes, but short, because a task may be waiting for the copy. */
  private val PatienceMs = 200L

  /** How many blocks are on their way, by executor. */
  private val underWay = new ConcurrentHashMap[String, Integer]()

  /**
   * Begins to fetch a block, and waits for a moment.
   *
   * @param late called on another thread if the outcome comes after that moment
   * @return `None` if there are too many fetches from that executor already, for example because it doesn't answer
   */
  def begin(from: BlockManagerId, id: BlockId)(fetch: => Array[Byte])(late: => Unit): Option[BlockFetch] =
    if (!enter(from.executorId)) None
    else {
      val isLate = new AtomicBoolean()
      val task = new FutureTask[Array[Byte]](() =>
        try fetch
        finally leave(from.executorId)) {
        // If the outcome comes just when the caller stops waiting, the caller sees it.
        override def done(): Unit = if (isLate.get) late
      }
      try ShippingThreads.fetches.execute(task)
      catch {
        case e: Throwable =>
          leave(from.executorId)
          throw e
      }
      try task.get(PatienceMs, TimeUnit.MILLISECONDS)
      catch {
        case _: ExecutionException =>
        case _: TimeoutException => isLate.set(true)
      }
      Some(new BlockFetch(id, task))
    }

  private def enter(executor: String): Boolean = {
    val isEntered = underWay.merge(executor, 1, (a, b) => a + b) <= MostOfAnExecutor
    if (!isEntered) leave(executor)
    isEntered
  }

  private def leave(executor: String): Unit =
    underWay.computeIfPresent(executor, (_, n) => if (n == 1) null else n - 1)
}
