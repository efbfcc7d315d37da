package org.apache.spark.sql.execution.streaming.state.binshift.shipping

import java.nio.ByteBuffer
import java.util.concurrent.ThreadLocalRandom

import scala.collection.mutable
import scala.concurrent.{ExecutionContext, Future}
import scala.util.control.NonFatal

import org.apache.spark.internal.Logging
import org.apache.spark.sql.execution.streaming.state.StateStoreId
import org.apache.spark.sql.execution.streaming.state.binshift.Faults
import org.apache.spark.sql.execution.streaming.state.binshift.routing.ShippingOrder
import org.apache.spark.storage.{BlockId, BlockManagerId}

/**
 * The receiving end of a shipment. It asks the driver once where the sender is. Then it reads from the sender's executor: the marker,
 * which tells what there is to fetch, and the chunks themselves.
 *
 * The sender frees chunks that were received, so a shipment has only one receiver. A receiver that finds out that another one is
 * served gives up at once, and its bins come from the checkpoint. It also gives up if the sender begins again, because its chunks
 * are from the earlier sender.
 *
 * It doesn't block on an executor that doesn't answer, so that others can use the thread meanwhile.
 *
 * Not thread-safe.
 */
private[binshift] final class IncomingShipment(
    order: ShippingOrder, source: StateStoreId, target: Int, conf: BackgroundConf) extends Logging {
  import IncomingShipment._

  private val number = ThreadLocalRandom.current.nextLong(1, Long.MaxValue)
  private val markerId = ShipmentFormat.markerId(order.broadcast, source)
  private val pieces = ShipmentPieces(conf, order.leaving(source.partitionId).size)
  private val requests = mutable.LinkedHashMap.empty[Int, Request]
  private var next = 0
  private var receivedAt = System.nanoTime()
  /** The chunk that could not be fetched at the last attempt. */
  private var missed = -1
  /** The one block that is on its way, if any. */
  private var underWay: Option[BlockFetch] = None

  /** The executor from which to fetch chunks; `None` if it isn't known, or nobody sends any more. */
  private var place: Option[BlockManagerId] = None
  private var locatedAt = System.nanoTime() - LookNs
  /** The epoch that had begun when the driver was asked, if it knew nobody. */
  private var nobodyIn = -1L
  /** The sender, and the number of chunks that it has sent, according to the latest marker. */
  private var sender = ShipmentMarker.Nobody
  private var sent = 0

  /** Bytes that have arrived and that the sender hasn't been told of. */
  private var untoldBytes = 0L
  private var isUntold = false
  private var isGivenUp = false
  /** True if another receiver has been served after this one. */
  private var isDisplaced = false
  private var told: Future[Unit] = Future.unit
  /** The latest message to the sender; it may still be on its way. */
  private var started: Future[Any] = Future.unit
  private var toldAt = System.nanoTime()

  /** True if the sender has said how much it has sent, even if that is nothing yet. */
  def isHeard: Boolean = sender != ShipmentMarker.Nobody && place.nonEmpty

  /**
   * Gives the next chunk to `read`, with its index.
   *
   * @param begun the epoch that has begun
   * @return `None` if it hasn't arrived yet
   * @throws DamagedShipment if it will never arrive
   */
  def receive(begun: Long)(read: (Array[Byte], Int) => ChunkHeader): Option[ChunkHeader] = {
    if (next >= sent) look(begun)
    val header = fetch().map { chunk =>
      val header = read(chunk, next)
      next += 1
      receivedAt = System.nanoTime()
      isUntold = true
      untoldBytes += chunk.length
      header
    }
    if (header.exists(_.isLast) || untoldBytes >= pieces.toldBytes || isUntold && isOlder(toldAt, conf.timeoutMs * 500000L))
      tell()
    header
  }

  /**
   * Asks the source to send `bin` before the others, but only once. Returns whether it asked.
   *
   * @param begun the epoch that has begun. If nobody sends any more in that epoch, [[receive]] reports it.
   */
  def request(bin: Int, begun: Long): Boolean = !requests.contains(bin) && located(begun, AskNs).exists { to =>
    val content = ByteBuffer.allocate(Integer.BYTES + java.lang.Long.BYTES).putInt(bin).putLong(number).array
    val id = ShipmentFormat.requestId(order.broadcast, source, target, requests.size)
    requests(bin) = Request(id, content, push(to, id, content))
    true
  }

  /**
   * Tells the sender that no more chunks are wanted, because it would otherwise wait until there is room for the rest. This uses a block
   * of its own, because the sender may not have taken the other one yet. If another receiver is served by now, the sender isn't
   * told, because that receiver continues. Doesn't wait.
   */
  def giveUp(): Unit = if (sender != ShipmentMarker.Nobody && !isGivenUp && !isDisplaced) place.foreach { to =>
    isGivenUp = true
    say(to, givenUpId, Array[Byte](0))
  }

  /** Removes messages that the sender is no longer there to take. */
  def close(): Unit = if (sender != ShipmentMarker.Nobody) {
    val said = receivedId +: Option.when(isGivenUp)(givenUpId).toSeq
    told.onComplete { _ =>
      try said.foreach { id =>
          ShipmentBlocks.remove(id)
          // The driver was not told of a block that was put here by this executor.
          if (place.exists(ShipmentBlocks.isMine)) ShipmentBlocks.removeHere(id)
        }
      catch { case NonFatal(e) => logDebug(s"${said.mkString(", ")} go with their broadcast", e) }
    }(ExecutionContext.fromExecutor(ShippingThreads.closing))
  }

  /**
   * The next chunk, if it was sent. If it can't be fetched, it is tried once more, because the marker tells whether the executor can be
   * reached.
   */
  private def fetch(): Option[Array[Byte]] = place.filter(_ => next < sent).flatMap { from =>
    val id = ShipmentFormat.chunkId(order.broadcast, source, target, next, sender)
    try fetched(from, id, pointsOfChunk)
    catch {
      case NonFatal(e) if missed == next => never(s"it was sent, and went to another receiver or was lost (${e.getMessage})")
      case NonFatal(e) =>
        logInfo(s"piece ${next + 1} of what $source sends to partition $target could not be fetched at $from", e)
        missed = next
        sent = next
        None
    }
  }

  /** Fetches a block from an executor; `None` while it is on its way. */
  private def fetched(from: BlockManagerId, id: BlockId, points: Seq[String]): Option[Array[Byte]] = {
    if (!underWay.exists(_.id == id)) underWay = BlockFetch.begin(from, id) {
      val block = ShipmentBlocks.fetchFrom(from, id)
      points.foreach(Faults.at(_, target))
      block
    }(SourceFollower.wake(source, order))
    try {
      val block = underWay.flatMap(_.outcome)
      if (block.nonEmpty) underWay = None
      block
    } catch {
      case e: Throwable =>
        underWay = None
        throw e
    }
  }

  /**
   * Tells the sender how many chunks have arrived. Until the sender has taken that block, another one of the same name has no effect. In
   * that case, the next message will have the new number.
   */
  private def tell(): Unit = place.foreach { to =>
    say(to, receivedId, ByteBuffer.allocate(Integer.BYTES).putInt(next).array)
    isUntold = false
    untoldBytes = 0
    toldAt = System.nanoTime()
  }

  /** Sends a message after the earlier ones, even if these have failed. */
  private def say(to: BlockManagerId, id: BlockId, content: Array[Byte]): Unit =
    told = told.transformWith(_ => push(to, id, content))(ExecutionContext.parasitic)

  /**
   * Sends a block, and tries once more if that fails. Blocks are sent in the order of the calls, but not on the caller's thread: Spark
   * connects to the executor on the thread that sends, which takes minutes if its machine doesn't answer.
   */
  private def push(to: BlockManagerId, id: BlockId, content: Array[Byte]): Future[Unit] = {
    val threads = ExecutionContext.fromExecutor(ShippingThreads.fetches)
    def once() = Future {
      Faults.at(s"push.${source.partitionId}", target)
      ShipmentBlocks.push(to, id, content)
    }(threads)
    val first = started.transformWith(_ => once())(ExecutionContext.parasitic)
    started = first
    first.flatten.recoverWith { case NonFatal(e) =>
      logInfo(s"$id did not come to $to and is sent again", e)
      once().flatten
    }(threads)
  }

  /** Reads in the marker how much was sent. */
  private def look(begun: Long): Unit = located(begun, LookNs) match {
    case Some(to) =>
      val marker =
        try fetched(to, markerId, Nil)
        catch {
          case NonFatal(e) =>
            logInfo(s"what $source sends to partition $target could not be read at $to; the driver is asked where it is", e)
            place = None
            None
        }
      marker.foreach(bytes => learn(ShipmentMarker.read(bytes, target)))
      if (place.nonEmpty) askAgain(to)
    // A source that has bins to send says so before its task ends, and therefore before the next epoch begins.
    case None => if (nobodyIn >= order.base) never("nobody sends any more")
  }

  private def learn(marker: ShipmentMarker.Content): Unit = {
    val isAnother = sender != marker.sender && sender != ShipmentMarker.Nobody && (next > 0 || requests.nonEmpty)
    // Noted even if nothing is received, because the sender may be waiting for room.
    sender = marker.sender
    isDisplaced = false
    if (isAnother) never("it is sent once more, by another attempt or another executor")
    marker.sent.foreach { s =>
      sent = s.chunks
      val isForAnother = s.receiver != ShipmentMarker.Nobody && s.receiver != number
      // A receiver that hasn't received anything may be the only one that is left.
      isDisplaced = isForAnother && next > 0
      if (s.freed > next) never("it was sent, and went to another receiver or was lost")
      if (s.chunks <= next && isForAnother && isOlder(receivedAt, LookNs)) {
        isDisplaced = true
        never("bins are sent as another receiver asks for them")
      }
    }
    if (marker.phase == ShipmentMarker.Over && next >= sent) never("its source gave up")
    if (marker.phase == ShipmentMarker.Full && isUntold && untoldBytes >= pieces.toldBytes / LeastShare) tell()
  }

  /** Sends requests again. They are numbered, so a lost one would hold up all later ones. */
  private def askAgain(to: BlockManagerId): Unit = requests.foreach { case (bin, request) =>
    if (request.pushed.value.exists(_.isFailure)) {
      requests(bin) = request.copy(pushed = push(to, request.id, request.content))
    }
  }

  private def never(why: String): Nothing = throw new DamagedShipment(s"its piece ${next + 1} will not come: $why")

  /** Finds the sender. Asks the driver if the sender isn't known, but not more often than each `afterNs`. */
  private def located(begun: Long, afterNs: Long): Option[BlockManagerId] = {
    if (place.isEmpty && isOlder(locatedAt, afterNs)) {
      place = ShipmentBlocks.locate(markerId)
      locatedAt = System.nanoTime()
      nobodyIn = if (place.isEmpty) begun else -1L
    }
    place
  }

  private def pointsOfChunk: Seq[String] =
    Seq("fetch.chunk", s"fetch.chunk.${source.storeName}", s"fetch.chunk.${source.partitionId}")

  private def givenUpId: BlockId = ShipmentFormat.givenUpId(order.broadcast, source, target, sender)

  private def receivedId: BlockId = ShipmentFormat.receivedId(order.broadcast, source, target, sender)

  private def isOlder(time: Long, ns: Long): Boolean = System.nanoTime() - time >= ns
}

private object IncomingShipment {
  /** How often the driver is asked, and how long this waits before it gives way to another receiver. */
  private val LookNs = 200000000L
  /** The same if a task waits. */
  private val AskNs = 20000000L
  /** If the sender has no room, a receiver tells what it has only if that is at least this part of its share. */
  private val LeastShare = 8

  private final case class Request(id: BlockId, content: Array[Byte], pushed: Future[Unit])
}
