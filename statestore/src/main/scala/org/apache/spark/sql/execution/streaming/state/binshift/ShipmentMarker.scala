package org.apache.spark.sql.execution.streaming.state.binshift

import java.nio.ByteBuffer
import java.util.concurrent.ConcurrentHashMap

import scala.collection.mutable

import org.apache.spark.storage.BlockId

/**
 * The block that is there as long as a store has more to send in an order. It says how far the store is, for each new
 * owner of its bins: how many chunks it has sent, and which receiver it heard last. A shipment can be received
 * once; a second receiver, as that of a task which is retried elsewhere, sees here that it is too late.
 *
 * {{{
 *   marker = (target : int, chunks : int, receiver : long)*
 * }}}
 *
 * The driver knows where the block is, and its size, which does not change; so a change of it is a matter of this
 * executor alone. Only the last marker that was made for a block changes it or takes it away: a store that commits a
 * version once more sends once more.
 *
 * Used by one thread at a time.
 */
private[binshift] final class ShipmentMarker(id: BlockId, targets: Iterable[Int]) {
  import ShipmentMarker._

  private val sent = mutable.SortedMap(targets.map(_ -> Sent(0, Nobody)).toSeq: _*)

  holders.compute(id, (_, _) => {
    Shipments.put(id, encode(sent))
    this
  })

  /** One more chunk for `target` is in the block store, or will never be. */
  def chunkSent(target: Int): Unit = change(target)(s => s.copy(chunks = s.chunks + 1))

  /** A wish of `receiver`, for `target`, is being seen to. */
  def wishHeard(target: Int, receiver: Long): Unit = change(target)(_.copy(receiver = receiver))

  def close(): Unit = holders.computeIfPresent(id, (_, holder) =>
    if (holder ne this) holder else {
      Shipments.removeHere(id)
      null
    })

  private def change(target: Int)(how: Sent => Sent): Unit = {
    sent(target) = how(sent(target))
    holders.computeIfPresent(id, (_, holder) => {
      if (holder eq this) Shipments.replaceHere(id, encode(sent))
      holder
    })
  }
}

private[binshift] object ShipmentMarker {
  /** The receiver that none has as its number. */
  val Nobody = 0L

  /** @param receiver whose wish was heard last */
  final case class Sent(chunks: Int, receiver: Long)

  /** What a marker says of `target`; `None` also if it was read while it changed. */
  def read(marker: Array[Byte], target: Int): Option[Sent] =
    marker.grouped(EntryBytes).filter(_.length == EntryBytes).map(ByteBuffer.wrap).collectFirst {
      case entry if entry.getInt == target => Sent(entry.getInt, entry.getLong)
    }

  private val EntryBytes = 2 * Integer.BYTES + java.lang.Long.BYTES
  private val holders = new ConcurrentHashMap[BlockId, ShipmentMarker]()

  private def encode(sent: Iterable[(Int, Sent)]): Array[Byte] = {
    val bytes = ByteBuffer.allocate(sent.size * EntryBytes)
    sent.foreach { case (target, s) => bytes.putInt(target).putInt(s.chunks).putLong(s.receiver) }
    bytes.array
  }
}
