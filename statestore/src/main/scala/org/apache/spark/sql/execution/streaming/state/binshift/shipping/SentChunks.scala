package org.apache.spark.sql.execution.streaming.state.binshift.shipping

import java.nio.ByteBuffer
import java.util.concurrent.{ThreadLocalRandom, TimeUnit}

import scala.collection.mutable
import scala.util.control.NonFatal

import org.apache.spark.SparkEnv
import org.apache.spark.sql.execution.streaming.state.binshift.OrWarn
import org.apache.spark.sql.execution.streaming.state.StateStoreId
import org.apache.spark.sql.execution.streaming.state.binshift.routing.ShippingOrder
import org.apache.spark.storage.BlockId

/**
 * The chunks that a store has sent in an order, and that wait in this executor's block store until they are fetched. The driver doesn't
 * know of them: receivers ask this executor, where the marker tells them what there is.
 *
 * From time to time, a receiver says how many chunks it has (`ShipmentFormat.receivedId`), and those are freed. A receiver that gives
 * up says so (`ShipmentFormat.givenUpId`), and gets nothing more. The same happens to a receiver that says nothing for a long time
 * while there is no room.
 *
 * Thread-safe: one thread sends, and others close it and look for messages of receivers. Blocks are removed on threads of their own,
 * because removing a block that is being read has to wait.
 */
private[shipping] final class SentChunks(order: ShippingOrder, store: StateStoreId, conf: BackgroundConf) extends OrWarn {
  import SentChunks._

  /** Part of the names of its blocks, so that a store that sends again uses other names. */
  private val number = ThreadLocalRandom.current.nextLong(1, Long.MaxValue)
  private val targets = order.leaving(store.partitionId).keys.map(_ -> new Target).toMap
  private val marker = new ShipmentMarker(ShipmentFormat.markerId(order.broadcast, store), number, targets.keys)
  /** On demand, a receiver that fetches nothing keeps others waiting, and those give up after the timeout. */
  private val patienceNs = {
    val timeoutNs = conf.timeoutMs * 1000000L
    if (order.isOnDemand && targets.size > 1) timeoutNs / 2 else timeoutNs * (if (order.isAhead) 10 else 2)
  }
  private var isClosed = false
  private var isWatched = false

  /** The approximate size of chunks before compression. */
  def chunkBytes: Int = ShipmentPieces(conf, targets.size).chunkBytes

  /**
   * Blocks until there is room, and puts the chunk into the block store, unless its receiver was given up.
   *
   * @throws Cancelled if it is closed, or the order is over
   */
  def send(target: Int, index: Int, chunk: Array[Byte]): Unit = {
    val to = targets(target)
    // A chunk for a receiver that was given up takes no room.
    if (!synchronized(to.isAbandoned)) awaitRoom(chunk.length)
    synchronized {
      requireOpen()
      if (!to.isAbandoned) {
        ShipmentBlocks.put(chunkId(target, index), chunk, tellDriver = false)
        if (to.waiting.isEmpty) to.heardAt = System.nanoTime()
        to.waiting.enqueue(chunk.length)
      }
      to.sent = index + 1
      marker.chunkSent(target)
      if (to.isAbandoned) free(target, to, to.sent)
      watch()
    }
  }

  /** Notes that a request of `receiver`, for `target`, is being handled. */
  def requestServed(target: Int, receiver: Long): Unit = marker.requestServed(target, receiver)

  /** Marks the end: nothing more will be sent. */
  def end(): Unit =
    orWarn(s"$store could not announce that it sends nothing more for order ${order.id}", marker.close())(marker.end())

  /** Frees chunks that nobody has fetched. Nothing can be sent afterwards. */
  def close(): Unit = synchronized {
    if (!isClosed) {
      isClosed = true
      remove(for ((target, to) <- targets.toSeq; i <- to.freed until to.sent) yield chunkId(target, i))
      remove(targets.keys.toSeq.flatMap(target => Seq(receivedId(target), givenUpId(target))))
      marker.close()
    }
  }

  private def requireOpen(): Unit = if (synchronized(isClosed)) throw new Cancelled

  private def awaitRoom(bytes: Long): Unit = {
    val begun = System.nanoTime()
    def isFull = synchronized {
      val waiting = targets.values.map(_.waiting.sum).sum
      waiting > 0 && waiting + bytes > conf.maxBytesInFlight
    }
    while (isFull) {
      requireOpen()
      if (!freeReceived()) {
        // Most receivers report before that.
        if (System.nanoTime() - begun > FullNs) marker.setFull(true)
        // A stopped query's store is only closed a minute later, and other stores wait for this thread.
        if (!marker.isHere) throw new Cancelled
        abandon(begun)
        Thread.sleep(PollMs)
      }
    }
    marker.setFull(false)
  }

  /** Gives up on receivers that have been silent for long, and since `begun`. */
  private def abandon(begun: Long): Unit = synchronized {
    targets.foreach { case (target, to) =>
      if (to.waiting.nonEmpty && System.nanoTime() - math.max(begun, to.heardAt) > patienceNs) {
        logWarning(s"$store sends nothing more to partition $target in order ${order.id}: it has fetched nothing for a long time")
        abandon(target, to)
      }
    }
  }

  private def abandon(target: Int, to: Target): Unit = {
    to.isAbandoned = true
    free(target, to, to.sent)
  }

  /** Frees chunks that receivers have, or don't want; returns whether there were any messages. */
  private def freeReceived(): Boolean = targets.count { case (target, to) =>
    val said = ShipmentBlocks.takeHere(receivedId(target)).filter(_.length == Integer.BYTES).map(ByteBuffer.wrap(_).getInt)
    said.foreach { n =>
      synchronized {
        to.heardAt = System.nanoTime()
        free(target, to, math.min(n, to.sent))
      }
    }
    val isGivenUp = ShipmentBlocks.takeHere(givenUpId(target)).nonEmpty
    if (isGivenUp) {
      logInfo(s"$store sends nothing more to partition $target in order ${order.id}: its bins come from the checkpoint")
      synchronized(abandon(target, to))
    }
    said.nonEmpty || isGivenUp
  } > 0

  /** Frees all chunks before the `n`-th, if they still exist. */
  private def free(target: Int, to: Target, n: Int): Unit = if (n > to.freed && !isClosed) {
    val freed = to.freed until n
    to.waiting.remove(0, math.min(freed.size, to.waiting.size))
    to.freed = n
    // The order matters: a second receiver looks at the marker before it fetches.
    marker.chunksFreed(target, n)
    remove(freed.map(chunkId(target, _)))
  }

  private def remove(ids: Seq[BlockId]): Unit = ShippingThreads.freeing.execute { () =>
    ids.foreach { id =>
      try ShipmentBlocks.removeHere(id)
      catch { case NonFatal(e) => logInfo(s"$id goes with its broadcast, as it could not be removed", e) }
    }
  }

  private def chunkId(target: Int, index: Int) = ShipmentFormat.chunkId(order.broadcast, store, target, index, number)

  private def receivedId(target: Int) = ShipmentFormat.receivedId(order.broadcast, store, target, number)

  private def givenUpId(target: Int) = ShipmentFormat.givenUpId(order.broadcast, store, target, number)

  /** Looks for messages of receivers as long as chunks wait, even after all were sent. */
  private def watch(): Unit = if (!isWatched && !isClosed && targets.values.exists(_.waiting.nonEmpty)) {
    isWatched = true
    ShippingThreads.freeing.schedule((() => look()): Runnable, WatchMs, TimeUnit.MILLISECONDS)
  }

  private def look(): Unit = if (SparkEnv.get != null) {
    orWarn(s"$store could not free what it has sent in order ${order.id}; it tries again")(
      if (!synchronized(isClosed)) freeReceived())
    synchronized {
      isWatched = false
      watch()
    }
  }
}

private object SentChunks {
  private val PollMs = 20L
  private val WatchMs = 100L
  /** After this time without room, receivers are asked to report what they have. */
  private val FullNs = 200000000L

  /** The chunks that were sent to a partition. */
  private final class Target {
    var sent = 0
    var freed = 0
    /** When the receiver reported last, or began to have something to fetch. */
    var heardAt = System.nanoTime()
    var isAbandoned = false
    /** Bytes of the chunks that wait, in their order. */
    val waiting = mutable.Queue.empty[Int]
  }
}

/** The order is over, or the store is closed. */
private[shipping] final class Cancelled extends RuntimeException
