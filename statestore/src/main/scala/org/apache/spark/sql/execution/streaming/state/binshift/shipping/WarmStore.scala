package org.apache.spark.sql.execution.streaming.state.binshift.shipping

import java.io.File
import java.util.concurrent.{ConcurrentHashMap, TimeUnit}

import scala.util.control.NonFatal

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path

import org.apache.spark.internal.Logging
import org.apache.spark.sql.execution.streaming.state.{RocksDBFileMapping, RocksDBSstFile}
import org.apache.spark.sql.execution.streaming.state.binshift.{Faults, Trace}
import org.apache.spark.sql.execution.streaming.state.binshift.checkpoint.VersionFile
import org.apache.spark.storage.{BlockId, BroadcastBlockId}

/**
 * Fetches the files of a store that is about to come to this executor: those of the newest snapshot in the checkpoint, in the
 * background and at the pace of shipping. When the store is loaded here, Spark finds these files, and fetches only the others.
 *
 * Files of snapshots are immutable and have unique names in the checkpoint, so a file is useful for each version that contains
 * it. Files that are missing here, or don't belong to the loaded version, are fetched as usual. So a failure here costs time and
 * nothing else.
 *
 * It puts a block to tell the driver that the files are here, or that there will be none, for example because the store came
 * first. The block belongs to a broadcast of the driver's, which exists for as long as the files are wanted.
 *
 * Thread-safe: one turn at a time fetches, and the store's task takes the files.
 *
 * @param root  the store's directory in the checkpoint
 * @param order number of the broadcast
 * @param place position of the store in the order
 */
private[binshift] final class WarmStore private (
    root: Path, partition: Int, order: Long, place: Int, conf: BackgroundConf, hadoopConf: Configuration) extends Logging {
  import WarmStore._

  private val room = new FetchedFiles.Room(ShippingThreads.stagedBytes, conf.maxStagedBytes, "ship.maxStagedBytes")
  private val files = new FetchedFiles(root, "binshift-warm", room, hadoopConf)
  /** The version of the newest snapshot that was found, and its files. */
  @volatile private var listed = (0L, Seq.empty[RocksDBSstFile])
  private var snapshot = -1L
  private var failures = 0
  private var isSaid = false

  private def turn(): Unit =
    try {
      if (isWanted) {
        if (files.isOpen && failures < MaxFailures) {
          fetchNewest()
          failures = 0
        }
        say()
        if (files.isOpen) again(FollowMs)
      } else end()
    } catch {
      // The store came before its files. The next turn puts the block, for which the driver waits.
      case _: FetchedFiles.Unwanted => again(0)
      case NonFatal(e) if !files.isOpen =>
        logDebug(s"files of $root are not wanted any more", e)
        again(RetryMs)
      // Even fatal errors are caught, because nobody would hear of an error in a turn.
      case e: Throwable =>
        failures = if (NonFatal(e)) failures + 1 else MaxFailures
        logWarning(s"files of $root could not be fetched ahead ($failures of $MaxFailures times)", e)
        again(RetryMs)
    }

  private def again(ms: Long): Unit = ShippingThreads.warming.schedule((() => turn()): Runnable, ms, TimeUnit.MILLISECONDS)

  /** True while the files are wanted: the driver knows the first piece of the broadcast until it destroys that. */
  private def isWanted: Boolean = ShipmentBlocks.isAnywhere(BroadcastBlockId(order, "piece0"))

  private def fetchNewest(): Unit = {
    val newest = files.fs.listStatus(root).toSeq.flatMap(f => VersionFile.parse(f.getPath.getName)).filter(_.isSnapshot)
      .maxByOption(_.version)
    newest.filter(_.version > snapshot).foreach { found =>
      val wanted = files.of(new Path(root, VersionFile.name(found.version, found.id, VersionFile.Snapshot)))
      listed = (found.version, wanted)
      wanted.filterNot(files.has).foreach(fetch)
      snapshot = found.version
      files.keepOnly(wanted)
    }
  }

  private def fetch(file: RocksDBSstFile): Unit = {
    if (!files.isOpen || !isWanted) throw new FetchedFiles.Unwanted
    Faults.at("warm.file", partition)
    files.fetch(file, conf.chunkBytes)(ShippingThreads.pace(_, conf.maxBytesPerSecond, conf.areAllCoresBusy))
  }

  /** Puts the block that tells the driver that the store may come. */
  private def say(): Unit = if (!isSaid) {
    val ready = readyBlock(order, place)
    ShipmentBlocks.put(ready, Array[Byte](0))
    isSaid = true
    // The order may have been closed in between, and then nobody else would remove the block.
    if (!isWanted) ShipmentBlocks.removeHere(ready)
  }

  private def end(): Unit = {
    stores.remove(root.toString, this)
    files.close()
  }
}

private[sql] object WarmStore extends Logging {
  private val FollowMs = 5000L
  private val RetryMs = 1000L
  private val MaxFailures = 3

  private val stores = new ConcurrentHashMap[String, WarmStore]()

  /** The block by which an executor says that the files of a store are here, or won't be. */
  def readyBlock(order: Long, place: Int): BlockId = BroadcastBlockId(order, s"_warm_$place")

  /** Begins to fetch the files of a store. Called in a task on the executor that should have them. */
  def begin(root: String, partition: Int, order: Long, place: Int, conf: BackgroundConf, hadoopConf: Configuration): Unit = {
    val store = new WarmStore(new Path(root), partition, order, place, conf, hadoopConf)
    if (Trace.isOn) Trace("fetches ahead", new Path(root), "order" -> order)
    Option(stores.put(root, store)).foreach(_.end())
    ShippingThreads.warming.execute(() => store.turn())
  }

  /** The files that are here for a store that is being loaded. Nobody else gets them afterwards. */
  private[shipping] def of(root: String): Option[Taken] = Option(stores.get(root)).map(new Taken(_))

  private[shipping] final class Taken(store: WarmStore) {
    /** Links the files into the directory `into`, and returns those links. */
    def link(into: File, mapping: RocksDBFileMapping, version: Long): Seq[File] = {
      val (snapshot, files) = store.listed
      if (snapshot <= version) store.files.link(files, into, mapping, version) else Nil
    }

    def close(): Unit = store.end()
  }
}
