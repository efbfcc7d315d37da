package org.apache.spark.sql.execution.streaming.state.binshift.shipping

import java.nio.ByteBuffer
import java.util.concurrent.ConcurrentHashMap

import scala.collection.mutable

import org.apache.spark.sql.execution.streaming.state.binshift.Faults
import org.apache.spark.storage.BlockId

/**
 * The block that says how far a sending store has come in an order: whether it has more to send, or waits for room; and for each new
 * owner of its bins, how many chunks it has sent, how many of them were freed, and which receiver it served last. A shipment can be
 * received once. A second receiver, for example of a task that is retried elsewhere, sees here that it is too late.
 *
 * {{{
 *   marker = phase : int, sender : long, (target : int, chunks : int, freed : int, receiver : long)*
 * }}}
 *
 * The block stays until the order or the store is closed. Receivers look at it as long as they wait, and if it were gone, Spark would
 * log an error.
 *
 * Changes concern only this executor (`ShipmentBlocks.replaceHere`). If a store commits a version again, it sends again, with another
 * marker for the same block. Then only the newest marker changes or removes the block.
 *
 * Thread-safe.
 */
private[binshift] final class ShipmentMarker(id: BlockId, sender: Long, targets: Iterable[Int]) {
  import ShipmentMarker._

  private val sent = mutable.SortedMap(targets.map(_ -> Sent(0, 0, Nobody)).toSeq: _*)

  private var phase: Phase = Sending

  holders.compute(id,
    (_, _) => {
      ShipmentBlocks.put(id, encode(phase, sender, sent))
      this
    })

  /** Nothing more will be sent. */
  def end(): Unit = enter(Over)

  /** Sets whether the sender waits until receivers have reported what they have. */
  def setFull(isFull: Boolean): Unit = enter(if (isFull) Full else Sending)

  /** One more chunk for `target` is in the block store, or was dropped. */
  def chunkSent(target: Int): Unit = change(target)(s => s.copy(chunks = s.chunks + 1))

  /** The first `n` chunks for `target` are no longer in the block store. */
  def chunksFreed(target: Int, n: Int): Unit = change(target)(_.copy(freed = n))

  /** Notes that a request of `receiver`, for `target`, is being handled. */
  def requestServed(target: Int, receiver: Long): Unit = change(target)(_.copy(receiver = receiver))

  def close(): Unit = holders.computeIfPresent(id,
    (_, holder) =>
      if (holder ne this) holder
      else {
        Faults.at("marker.close")
        ShipmentBlocks.removeHere(id)
        null
      })

  /** True if the block exists. It is removed with the order's broadcast. */
  def isHere: Boolean = ShipmentBlocks.isHere(id)

  private def enter(next: Phase): Unit = synchronized {
    if (phase != next && phase != Over) {
      phase = next
      publish()
    }
  }

  private def change(target: Int)(how: Sent => Sent): Unit = synchronized {
    sent(target) = how(sent(target))
    publish()
  }

  private def publish(): Unit = holders.computeIfPresent(id,
    (_, holder) => {
      if (holder eq this) ShipmentBlocks.replaceHere(id, encode(phase, sender, sent))
      holder
    })
}

private[binshift] object ShipmentMarker {
  /** A number that no receiver has. */
  val Nobody = 0L

  /** Chunks are sent. */
  case object Sending extends Phase(0)
  /** There is no room for more chunks. */
  case object Full extends Phase(1)
  /** Nothing more will be sent. */
  case object Over extends Phase(2)

  sealed abstract class Phase(private[ShipmentMarker] val number: Int)

  /** @param receiver the receiver whose request was served last */
  final case class Sent(chunks: Int, freed: Int, receiver: Long)

  /**
   * @param sender the number of the sender
   * @param sent   what it has sent to a partition, if anything
   */
  final case class Content(phase: Phase, sender: Long, sent: Option[Sent])

  /** Reads what a marker says about its store, and about `target`. */
  def read(marker: Array[Byte], target: Int): Content = {
    if (marker.length % EntryBytes != HeadBytes) throw new DamagedShipment(s"its marker has ${marker.length} bytes")
    val head = ByteBuffer.wrap(marker)
    val number = head.getInt
    val phase = Seq(Sending, Full, Over).find(_.number == number).getOrElse {
      throw new DamagedShipment(s"its marker has phase $number")
    }
    val sent = marker.drop(HeadBytes).grouped(EntryBytes).map(ByteBuffer.wrap).collectFirst {
      case entry if entry.getInt == target => Sent(entry.getInt, entry.getInt, entry.getLong)
    }
    Content(phase, head.getLong, sent)
  }

  private val HeadBytes = Integer.BYTES + java.lang.Long.BYTES
  private val EntryBytes = 3 * Integer.BYTES + java.lang.Long.BYTES
  private val holders = new ConcurrentHashMap[BlockId, ShipmentMarker]()

  private def encode(phase: Phase, sender: Long, sent: Iterable[(Int, Sent)]): Array[Byte] = {
    val bytes = ByteBuffer.allocate(HeadBytes + sent.size * EntryBytes).putInt(phase.number).putLong(sender)
    sent.foreach { case (target, s) => bytes.putInt(target).putInt(s.chunks).putInt(s.freed).putLong(s.receiver) }
    bytes.array
  }
}
