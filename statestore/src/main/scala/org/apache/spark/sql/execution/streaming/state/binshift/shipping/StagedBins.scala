package org.apache.spark.sql.execution.streaming.state.binshift.shipping

import java.io.File

import scala.collection.mutable

import org.apache.spark.sql.execution.streaming.state.binshift.OrWarn
import org.apache.spark.sql.execution.streaming.state.binshift.routing.{EpochRouting, ShippingOrder}
import org.apache.spark.util.Utils

/**
 * The copies for one store. A [[SourceFollower]] makes progress with each of them in the background.
 *
 * @param clients for each source, the client that asks it for rows
 */
private[binshift] final class StagedBins(
    dir: File, conf: BackgroundConf, order: ShippingOrder, copies: Seq[StagedCopy], clients: Map[Int, RowClient],
    routing: EpochRouting) extends OrWarn {
  private val followers = copies.map(SourceFollower.join(_, order, routing))

  def begin(epoch: Long, next: Int, dueStep: Option[Int]): Unit = {
    copies.foreach(_.begin(epoch, next, dueStep))
    followers.foreach(_.wake())
  }

  def bytesCopied: Long = copies.map(_.bytesCopied).sum

  /** True if a step with bins from `source` should wait for its copy. */
  def isAwaited(source: Int): Boolean = copies.exists(c => c.sourcePartition == source && c.isAwaited)

  /** True if there will be no copy from `source`. */
  def isGivenUp(source: Int): Boolean = copies.exists(c => c.sourcePartition == source && c.isFailed)

  /** The copy from `source`, even if it isn't complete yet; `None` if there will be none. */
  def copyOnTheWay(source: Int): Option[StagedCopy] = copies.find(c => c.sourcePartition == source && !c.isFailed)

  /** Asks for `bin` of `copy` before others. A waiting task calls this again and again. */
  def request(copy: StagedCopy, bin: Int): Unit = if (copy.request(bin)) followers.foreach(_.wake())

  /** The client that asks `source` for rows; `None` if only bins come from it. Used by the store's task. */
  def rowsFrom(source: Int): Option[RowClient] = clients.get(source)

  /**
   * The copy from `source` if it is complete. Unless bins are copied ahead, this waits for the copy as long as something of it arrives,
   * because the copy has the version that is loaded. For each copy, the time counts from the first wait on, so the task waits
   * only once for all copies from a machine that doesn't answer.
   */
  def copyFrom(source: Int): Option[StagedCopy] =
    copies.find(_.sourcePartition == source).filter { copy =>
      while (!order.isAhead && !copy.isStaged && !copy.isFailed && isProgressing(source)) Thread.sleep(StagedBins.PollMs)
      copy.isStaged
    }

  /**
   * For each source, how many bytes had arrived at the task's last look, and since when there have been that many (nanoseconds).
   */
  private val seen = mutable.Map.empty[Int, (Long, Long)]

  /** True if something from `source` has arrived lately, as far as the store's task has seen. */
  private def isProgressing(source: Int): Boolean = {
    val now = System.nanoTime()
    val all = copies.map(c => (c.sourcePartition, c.bytesCopied, c.isHeard))
    def hasMore(of: Int, bytes: Long): Boolean = !seen.get(of).exists(_._1 == bytes)
    val isAnyComing = all.exists { case (of, bytes, _) => hasMore(of, bytes) }
    // An executor sends the bins of one store after the other, so a copy isn't stuck while another one from there makes progress.
    for ((of, bytes, isHeard) <- all if hasMore(of, bytes) || isAnyComing && isHeard && bytes == 0) seen(of) = (bytes, now)
    now - seen(source)._2 < conf.timeoutMs * 1000000L
  }

  def close(): Unit = {
    copies.foreach(SourceFollower.leave(_, order))
    // All are cancelled before any is closed, because a checkpoint is read for as long as one copy needs it.
    copies.foreach(_.cancel())
    // On a thread of its own, because closing may wait for a turn that reads a checkpoint.
    ShippingThreads.closing.execute { () =>
      copies.foreach(copy => orWarn(s"a copy in $dir could not be closed; its directory is deleted")(copy.close()))
      Utils.deleteRecursively(dir)
    }
  }
}

private[binshift] object StagedBins {
  val PollMs = 10L
}
