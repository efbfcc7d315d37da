package org.apache.spark.sql.execution.streaming.state.binshift

import java.nio.ByteBuffer

import org.apache.spark.SparkEnv
import org.apache.spark.storage.{BlockId, StorageLevel}
import org.apache.spark.util.io.ChunkedByteBuffer

/**
 * Chunks in Spark's block stores, so that Spark's authentication, encryption, retries and network
 * settings hold for them.
 *
 * Relies on Spark: a block can be put by any thread and is then known to the driver's block manager
 * master; a block of a broadcast goes when the broadcast is destroyed.
 */
private[binshift] object Shipments {
  /** On disk at once: chunks of a migration must not push cached data of the user out of memory. */
  def put(id: BlockId, chunk: Array[Byte]): Unit = {
    // A chunk of the same content may be left by an earlier attempt.
    if (isHere(id)) blocks.removeBlock(id, tellMaster = false)
    store(id, chunk, tellMaster = true)
  }

  /** Changes the content, not the size, of a block that this executor holds. */
  def replaceHere(id: BlockId, content: Array[Byte]): Unit = {
    blocks.removeBlock(id, tellMaster = false)
    store(id, content, tellMaster = false)
  }

  /** Whether this executor still holds the block, that is, nobody has fetched it. */
  def isHere(id: BlockId): Boolean = blocks.getStatus(id).isDefined

  def isAnywhere(id: BlockId): Boolean = blocks.master.getLocations(id).nonEmpty

  def fetch(id: BlockId): Option[Array[Byte]] = local(id).orElse(blocks.getRemoteBytes(id).map { chunk =>
    try chunk.toArray finally chunk.dispose()
  })

  /** Frees the block wherever it is. */
  def remove(id: BlockId): Unit = blocks.master.removeBlock(id)

  /** Frees the block on this executor. */
  def removeHere(id: BlockId): Unit = if (isHere(id)) blocks.removeBlock(id)

  private def store(id: BlockId, content: Array[Byte], tellMaster: Boolean): Unit = {
    val stored = blocks.putBytes(id, new ChunkedByteBuffer(ByteBuffer.wrap(content)), StorageLevel.DISK_ONLY,
      tellMaster)(scala.reflect.ClassTag.Byte)
    if (!stored) throw new java.io.IOException(s"Spark's block store did not take $id")
  }

  private def local(id: BlockId): Option[Array[Byte]] = blocks.getLocalBytes(id).map { data =>
    try data.toChunkedByteBuffer(ByteBuffer.allocate).toArray finally {
      data.dispose()
      blocks.releaseLock(id)
    }
  }

  private def blocks = SparkEnv.get.blockManager
}
