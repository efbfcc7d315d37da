package org.apache.spark.sql.execution.streaming.state.binshift.shipping

import java.nio.ByteBuffer
import java.nio.channels.{FileChannel, WritableByteChannel}
import java.nio.file.{Files, Path, StandardCopyOption, StandardOpenOption}

import scala.concurrent.Future
import scala.reflect.ClassTag

import org.apache.spark.SparkEnv
import org.apache.spark.network.buffer.NioManagedBuffer
import org.apache.spark.network.util.JavaUtils
import org.apache.spark.security.CryptoStreamUtils
import org.apache.spark.storage.{BlockId, BlockManagerId, StorageLevel}
import org.apache.spark.util.io.ChunkedByteBuffer

/**
 * Puts, fetches and removes blocks in Spark's block stores, so that Spark's authentication, encryption, retries and network settings
 * apply to them.
 *
 * Relies on Spark: any thread can put a block, and chooses whether the driver's block manager master is told. A block of a broadcast
 * is removed when the broadcast is destroyed, whether the driver knows of it or not.
 */
private[binshift] object ShipmentBlocks {
  /**
   * Puts a block, on disk, because chunks of a migration must not push the user's cached data out of memory.
   *
   * @param tellDriver whether the driver can say where the block is
   */
  def put(id: BlockId, chunk: Array[Byte], tellDriver: Boolean = true): Unit = {
    // An earlier attempt may have left a chunk with the same content.
    if (isHere(id)) blocks.removeBlock(id, tellMaster = false)
    val bytes = new ChunkedByteBuffer(ByteBuffer.wrap(chunk))
    val stored = blocks.putBytes(id, bytes, StorageLevel.DISK_ONLY, tellMaster = tellDriver)(ClassTag.Byte)
    if (!stored) throw new java.io.IOException(s"Spark's block store did not take $id")
  }

  /**
   * Replaces the content of a block on this executor by content of the same size, if the block still exists. A reader, over the network
   * or from this executor's disk, gets either the old or the new content. The driver isn't told.
   *
   * Relies on Spark: a block on disk is a file of its own, encrypted if `spark.io.encryption` is on, of which nothing but
   * the size without encryption is remembered; and a block that is being read is not removed.
   */
  def replaceHere(id: BlockId, content: Array[Byte]): Unit = blocks.getLocalBytes(id).foreach { data =>
    try {
      val file = blocks.diskBlockManager.getFile(id).toPath
      val next = Files.createTempFile(file.getParent, "binshift-", ".next")
      try {
        write(next, content)
        Files.move(next, file, StandardCopyOption.ATOMIC_MOVE)
      } finally Files.deleteIfExists(next)
    } finally {
      data.dispose()
      blocks.releaseLock(id)
    }
  }

  private def write(file: Path, content: Array[Byte]): Unit = {
    val plain = FileChannel.open(file, StandardOpenOption.WRITE)
    val env = SparkEnv.get
    val out: WritableByteChannel = env.securityManager.getIOEncryptionKey()
      .fold[WritableByteChannel](plain)(CryptoStreamUtils.createWritableChannel(plain, env.conf, _))
    val bytes = ByteBuffer.wrap(content)
    try while (bytes.hasRemaining) out.write(bytes)
    finally out.close()
  }

  /**
   * Puts a block into the store of the executor at `to`, whose address the caller knows. The future fails if that executor can't
   * be reached.
   *
   * Relies on Spark: an executor accepts any block that another one uploads, because replicas of cached blocks arrive in this
   * way, and tells the driver about it. If it has the block already, it keeps that.
   */
  def push(to: BlockManagerId, id: BlockId, content: Array[Byte]): Future[Unit] = {
    val bytes = ByteBuffer.wrap(content)
    if (isMine(to)) {
      blocks.putBytes(id, new ChunkedByteBuffer(bytes), StorageLevel.DISK_ONLY, tellMaster = false)(ClassTag.Byte)
      Future.unit
    } else {
      blocks.blockTransferService.uploadBlock(
        to.host, to.port, to.executorId, id, new NioManagedBuffer(bytes), StorageLevel.DISK_ONLY, ClassTag.Byte)
    }
  }

  /** True if `place` is this executor. */
  def isMine(place: BlockManagerId): Boolean = place.executorId == here.executorId

  /** This executor's block manager. */
  def here: BlockManagerId = blocks.blockManagerId

  /** An executor that has the block, according to the driver. */
  def locate(id: BlockId): Option[BlockManagerId] = blocks.master.getLocations(id).headOption

  /** Takes a block that was pushed to this executor, and removes it. Waits while it is being written. */
  def takeHere(id: BlockId): Option[Array[Byte]] = if (!isHere(id)) None
  else {
    val content = local(id)
    // Tells the driver, if the driver knew of the block.
    blocks.removeBlock(id)
    content
  }

  /** True if this executor still has the block, which means that nobody has taken it. An executor that has stopped has no blocks. */
  def isHere(id: BlockId): Boolean = Option(SparkEnv.get).exists(_.blockManager.getStatus(id).isDefined)

  def isAnywhere(id: BlockId): Boolean = locate(id).nonEmpty

  /**
   * Fetches the block from the executor at `from`, without asking the driver.
   *
   * Relies on Spark: any block of an executor can be fetched from it, whether the driver knows of it or not. If the executor
   * doesn't have the block, it logs an error and tells the driver. So only ask for blocks that exist.
   *
   * @throws java.io.IOException or another exception of Spark's, if the executor can't be reached or doesn't have the block
   */
  def fetchFrom(from: BlockManagerId, id: BlockId): Array[Byte] =
    if (isMine(from)) {
      local(id).getOrElse(throw new java.io.IOException(s"$id is not here"))
    } else {
      val data = blocks.blockTransferService.fetchBlockSync(from.host, from.port, from.executorId, id.name, null)
      try JavaUtils.bufferToArray(data.nioByteBuffer())
      finally data.release()
    }

  /** Frees the block wherever it is. */
  def remove(id: BlockId): Unit = blocks.master.removeBlock(id)

  /** Frees the block on this executor. */
  def removeHere(id: BlockId): Unit = if (isHere(id)) blocks.removeBlock(id)

  private def local(id: BlockId): Option[Array[Byte]] = blocks.getLocalBytes(id).map { data =>
    try data.toChunkedByteBuffer(ByteBuffer.allocate).toArray
    finally {
      data.dispose()
      blocks.releaseLock(id)
    }
  }

  private def blocks = SparkEnv.get.blockManager
}
