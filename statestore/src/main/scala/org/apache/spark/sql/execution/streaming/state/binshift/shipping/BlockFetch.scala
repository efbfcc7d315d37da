package org.apache.spark.sql.execution.streaming.state.binshift.shipping

import java.util.concurrent.{ConcurrentHashMap, ExecutionException, FutureTask, TimeUnit, TimeoutException}
import java.util.concurrent.atomic.AtomicBoolean

import org.apache.spark.storage.{BlockId, BlockManagerId}

/**
 * A block on its way from another executor. Spark waits for one that does not answer until its own timeouts are over, some minutes.
 * So a fetch has a thread of its own, and who began it waits for a moment only.
 */
private[binshift] final class BlockFetch private (val id: BlockId, task: FutureTask[Array[Byte]]) {
  /**
   * The block, or `None` while it is on its way.
   *
   * @throws java.lang.Throwable what the fetch threw
   */
  def outcome: Option[Array[Byte]] =
    try Option.when(task.isDone)(task.get())
    catch { case e: ExecutionException => throw e.getCause }
}

private[binshift] object BlockFetch {
  /** Most blocks that are on their way from one executor, since each holds a thread: twice what is asked for at a time. */
  val MostOfAnExecutor = 2 * ShippingThreads.Followed

  /** Longer than a network takes that is slow; a task may wait for the copy meanwhile. */
  private val PatienceMs = 200L

  /** How many blocks are on their way, by executor. */
  private val underWay = new ConcurrentHashMap[String, Integer]()

  /**
   * Begins to fetch a block, and waits for a moment.
   *
   * @param late called on another thread when there is an outcome after that moment
   * @return `None` if no more may be on its way from that executor, as when it does not answer
   */
  def begin(from: BlockManagerId, id: BlockId)(fetch: => Array[Byte])(late: => Unit): Option[BlockFetch] =
    if (!enter(from.executorId)) None
    else {
      val isLate = new AtomicBoolean()
      val task = new FutureTask[Array[Byte]](() =>
        try fetch
        finally leave(from.executorId)) {
        // An outcome that comes while the caller gives up waiting is seen by the caller.
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
