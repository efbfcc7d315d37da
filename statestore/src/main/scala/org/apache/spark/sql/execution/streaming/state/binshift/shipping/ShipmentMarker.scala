package org.apache.spark.sql.execution.streaming.state.binshift.shipping

import java.nio.ByteBuffer
import java.util.concurrent.ConcurrentHashMap

import scala.collection.mutable

import org.apache.spark.storage.BlockId

/**
 * The block that says how far a store is that sends in an order. Whether it has more to send; and for each new
 * owner of its bins, how many chunks it has sent, and which receiver it served last. A shipment can be received
 * once; a second receiver, as that of a task which is retried elsewhere, sees here that it is too late.
 *
 * {{{
 *   marker = isOver : int, (target : int, chunks : int, receiver : long)*
 * }}}
 *
 * The block stays until the order is closed or the store is: receivers look at it as long as they wait, and one that
 * went while they do is an error in Spark's logs.
 *
 * A change of it is a matter of this executor alone (`ShipmentBlocks.replaceHere`). Only the last marker that was made for a
 * block changes it or takes it away: a store that commits a version once more sends once more.
 *
 * Used by one thread at a time.
 */
private[binshift] final class ShipmentMarker(id: BlockId, targets: Iterable[Int]) {
  import ShipmentMarker._

  private val sent = mutable.SortedMap(targets.map(_ -> Sent(0, Nobody)).toSeq: _*)

  private var isOver = false

  holders.compute(id,
    (_, _) => {
      ShipmentBlocks.put(id, encode(isOver, sent))
      this
    })

  /** Nothing more will be sent. */
  def end(): Unit = {
    isOver = true
    publish()
  }

  /** One more chunk for `target` is in the block store, or will never be. */
  def chunkSent(target: Int): Unit = change(target)(s => s.copy(chunks = s.chunks + 1))

  /** A request of `receiver`, for `target`, is being seen to. */
  def requestServed(target: Int, receiver: Long): Unit = change(target)(_.copy(receiver = receiver))

  def close(): Unit = holders.computeIfPresent(id,
    (_, holder) =>
      if (holder ne this) holder
      else {
        ShipmentBlocks.removeHere(id)
        null
      })

  private def change(target: Int)(how: Sent => Sent): Unit = {
    sent(target) = how(sent(target))
    publish()
  }

  private def publish(): Unit = holders.computeIfPresent(id,
    (_, holder) => {
      if (holder eq this) ShipmentBlocks.replaceHere(id, encode(isOver, sent))
      holder
    })
}

private[binshift] object ShipmentMarker {
  /** The receiver that none has as its number. */
  val Nobody = 0L

  /** @param receiver whose request was served last */
  final case class Sent(chunks: Int, receiver: Long)

  /** Whether the store of a marker has nothing more to send, and what it says of `target`, if anything. */
  def read(marker: Array[Byte], target: Int): (Boolean, Option[Sent]) = {
    if (marker.length % EntryBytes != Integer.BYTES) {
      throw new DamagedShipment(s"its marker has ${marker.length} bytes")
    }
    val isOver = ByteBuffer.wrap(marker).getInt != 0
    (isOver,
      marker.drop(Integer.BYTES).grouped(EntryBytes).map(ByteBuffer.wrap).collectFirst {
        case entry if entry.getInt == target => Sent(entry.getInt, entry.getLong)
      })
  }

  private val EntryBytes = 2 * Integer.BYTES + java.lang.Long.BYTES
  private val holders = new ConcurrentHashMap[BlockId, ShipmentMarker]()

  private def encode(isOver: Boolean, sent: Iterable[(Int, Sent)]): Array[Byte] = {
    val bytes = ByteBuffer.allocate(Integer.BYTES + sent.size * EntryBytes).putInt(if (isOver) 1 else 0)
    sent.foreach { case (target, s) => bytes.putInt(target).putInt(s.chunks).putLong(s.receiver) }
    bytes.array
  }
}
