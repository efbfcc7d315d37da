package org.apache.spark.sql.execution.streaming.state.binshift.shipping

import java.io.{ByteArrayInputStream, ByteArrayOutputStream, DataInputStream, DataOutputStream}

/**
 * An executor's report on its standbys of a query: once per interval, and when one of them is complete or has failed.
 *
 * Messages are arrays of bytes, because the driver's network layer may not see the classes of a jar that was added later.
 *
 * @param order  the order that it keeps to; -1 before the first
 * @param stores how far each store of the order has come, in the order's sequence
 */
private[sql] final case class StandbyReport(
    runId: String, executor: String, order: Long, stores: Seq[StandbyProgress]) {

  def toBytes: Array[Byte] = StandbyMessages.bytes { out =>
    out.writeUTF(runId)
    out.writeUTF(executor)
    out.writeLong(order)
    out.writeInt(stores.size)
    stores.foreach { s =>
      out.writeLong(s.base)
      out.writeLong(s.version)
      out.writeBoolean(s.hasFailed)
    }
  }
}

private[sql] object StandbyReport {
  def parse(bytes: Array[Byte]): StandbyReport = {
    val in = new DataInputStream(new ByteArrayInputStream(bytes))
    StandbyReport(in.readUTF(), in.readUTF(), in.readLong(),
      Seq.fill(in.readInt())(StandbyProgress(in.readLong(), in.readLong(), in.readBoolean())))
  }
}

/**
 * How far the standby of a store has come.
 *
 * @param base      the version of its snapshot; 0 if the checkpoint has none
 * @param version   the version that its own snapshot and changelogs lead to; -1 if the snapshot isn't complete, the highest number if the
 *                  store has no state
 * @param hasFailed whether files could not be fetched several times since they were last complete
 */
private[sql] final case class StandbyProgress(base: Long, version: Long, hasFailed: Boolean) {
  /** True if nobody needs to wait for the files: they are here, or there may never be any. */
  def isSettled: Boolean = version >= 0 || hasFailed
}

/**
 * The driver's answer to a report.
 *
 * @param committed the newest committed epoch: if there is none since the last look, there is nothing to fetch
 * @param order     the stores that are wanted, if they are others than the executor knows of
 */
private[sql] final case class StandbyAnswer(committed: Long, order: Option[StandbyOrder]) {
  def toBytes: Array[Byte] = StandbyMessages.bytes { out =>
    out.writeLong(committed)
    out.writeBoolean(order.isDefined)
    order.foreach { o =>
      out.writeLong(o.id)
      out.writeInt(o.stores.size)
      o.stores.foreach { s =>
        out.writeUTF(s.root)
        out.writeInt(s.partition)
      }
    }
  }
}

private[sql] object StandbyAnswer {
  /** The answer for a query that has ended. */
  val End: Array[Byte] = Array.emptyByteArray

  /** `None` if the query has ended. */
  def parse(bytes: Array[Byte]): Option[StandbyAnswer] = Option.when(bytes.nonEmpty) {
    val in = new DataInputStream(new ByteArrayInputStream(bytes))
    StandbyAnswer(in.readLong(),
      Option.when(in.readBoolean()) {
        StandbyOrder(in.readLong(), IndexedSeq.fill(in.readInt())(StandbyTarget(in.readUTF(), in.readInt())))
      })
  }
}

/** @param id grows with each order of a query */
private[sql] final case class StandbyOrder(id: Long, stores: IndexedSeq[StandbyTarget])

/** @param root the store's directory in the checkpoint */
private[sql] final case class StandbyTarget(root: String, partition: Int)

private object StandbyMessages {
  def bytes(write: DataOutputStream => Unit): Array[Byte] = {
    val out = new ByteArrayOutputStream
    write(new DataOutputStream(out))
    out.toByteArray
  }
}
