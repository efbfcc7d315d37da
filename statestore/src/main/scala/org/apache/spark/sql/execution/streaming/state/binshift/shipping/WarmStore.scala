package org.apache.spark.sql.execution.streaming.state.binshift.shipping

import java.io.{File, FileOutputStream}
import java.nio.file.{FileAlreadyExistsException, Files}
import java.util.concurrent.{ConcurrentHashMap, TimeUnit}
import java.util.zip.ZipInputStream

import scala.util.control.NonFatal

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{FileSystem, Path}

import org.apache.spark.internal.Logging
import org.apache.spark.sql.execution.streaming.state.{RocksDBCheckpointMetadata, RocksDBFileMapping, RocksDBImmutableFile, RocksDBSstFile}
import org.apache.spark.sql.execution.streaming.state.binshift.{Faults, ProcessConf}
import org.apache.spark.sql.execution.streaming.state.binshift.checkpoint.VersionFile
import org.apache.spark.storage.{BlockId, BroadcastBlockId}
import org.apache.spark.util.Utils

/**
 * The files of a store that is about to come to this executor: those of the newest snapshot in the checkpoint, fetched in the
 * background and at the pace of shipping. When the store is loaded here, Spark finds them and fetches the others.
 *
 * Files of snapshots are immutable and have unique names in the checkpoint, so a file is of use to whatever version has it. One
 * that is not here, or not of the version that is loaded, is fetched as if there were no warm store. Hence no failure here
 * can do more than cost time.
 *
 * A block says to the driver that the files are here, or will not be. It belongs to a broadcast of the driver's, which is there
 * as long as the files are wanted.
 *
 * Thread-safe: one turn at a time fetches; the store's task takes.
 *
 * @param root  the store's directory in the checkpoint
 * @param order number of the broadcast
 * @param place of the store in the order
 */
private[binshift] final class WarmStore private (
    root: Path, partition: Int, order: Long, place: Int, conf: BackgroundConf, hadoopConf: Configuration) extends Logging {
  import WarmStore._

  private val dir = Utils.createExecutorLocalTempDir(ProcessConf(), "binshift-warm")
  private lazy val fs: FileSystem = root.getFileSystem(hadoopConf)
  /** The files of the newest snapshot that was seen, and which files are here, by their names in the checkpoint. */
  private var listed = Seq.empty[RocksDBSstFile]
  private var here = Map.empty[String, Long]
  private var snapshot = -1L
  private var failures = 0
  private var isClosed = false
  private var isSaid = false

  private def turn(): Unit =
    try {
      if (isWanted) {
        if (failures < MaxFailures) {
          fetchNewest()
          failures = 0
        }
        say()
        again(FollowMs)
      } else end()
    } catch {
      case _: Stopped => end()
      case NonFatal(e) if synchronized(isClosed) => logDebug(s"files of $root are not wanted any more", e)
      case NonFatal(e) =>
        failures += 1
        logWarning(s"files of $root could not be fetched ahead ($failures of $MaxFailures times)", e)
        again(RetryMs)
    }

  private def again(ms: Long): Unit = ShippingThreads.warming.schedule((() => turn()): Runnable, ms, TimeUnit.MILLISECONDS)

  /** The first piece of the broadcast is known to the driver until it is destroyed. */
  private def isWanted: Boolean = !synchronized(isClosed) && ShipmentBlocks.isAnywhere(BroadcastBlockId(order, "piece0"))

  private def fetchNewest(): Unit = {
    val newest =
      fs.listStatus(root).toSeq.flatMap(f => VersionFile.parse(f.getPath.getName)).filter(_.isSnapshot).maxByOption(_.version)
    newest.filter(_.version > snapshot).foreach { found =>
      val files = filesOf(new Path(root, VersionFile.name(found.version, found.id, VersionFile.Snapshot)))
      synchronized { listed = files }
      files.filterNot(f => isHere(f)).foreach(fetch)
      synchronized {
        snapshot = found.version
        val names = files.map(_.dfsSstFileName).toSet
        val gone = here.keySet -- names
        gone.foreach(name => free(name))
      }
    }
  }

  private def isHere(file: RocksDBSstFile): Boolean = synchronized(here.contains(file.dfsSstFileName))

  private def fetch(file: RocksDBSstFile): Unit = {
    if (!isWanted) throw new Stopped
    Faults.at("warm.file", partition)
    if (ShippingThreads.stagedBytes.get + file.sizeBytes > conf.maxStagedBytes) {
      throw new IllegalStateException(s"there is no room for ${file.sizeBytes} bytes more in ship.maxStagedBytes")
    }
    val temporary = new File(dir, s"${file.dfsSstFileName}.part")
    val in = fs.open(new Path(new Path(root, RocksDBImmutableFile.SST_FILES_DFS_SUBDIR), file.dfsSstFileName))
    try {
      val out = new FileOutputStream(temporary)
      try {
        val buffer = new Array[Byte](conf.chunkBytes)
        Iterator.continually(in.read(buffer)).takeWhile(_ >= 0).foreach { n =>
          out.write(buffer, 0, n)
          ShippingThreads.pace(n, conf)
        }
      } finally out.close()
    } finally in.close()
    if (temporary.length != file.sizeBytes) {
      throw new IllegalStateException(s"${file.dfsSstFileName} has ${temporary.length} bytes instead of ${file.sizeBytes}")
    }
    synchronized {
      if (isClosed) throw new Stopped
      Files.move(temporary.toPath, local(file.dfsSstFileName).toPath)
      here += file.dfsSstFileName -> file.sizeBytes
      ShippingThreads.stagedBytes.addAndGet(file.sizeBytes)
    }
  }

  private def free(name: String): Unit = {
    here.get(name).foreach(bytes => ShippingThreads.stagedBytes.addAndGet(-bytes))
    here -= name
    Files.deleteIfExists(local(name).toPath)
  }

  private def local(name: String): File = new File(dir, name)

  /** The files that a snapshot names. */
  private def filesOf(zip: Path): Seq[RocksDBSstFile] = {
    val in = new ZipInputStream(fs.open(zip))
    try {
      if (!Iterator.continually(in.getNextEntry).takeWhile(_ != null).exists(_.getName == "metadata")) {
        throw new IllegalStateException(s"$zip has no list of its files")
      }
      val description = new File(dir, "metadata")
      Files.copy(in, description.toPath, java.nio.file.StandardCopyOption.REPLACE_EXISTING)
      RocksDBCheckpointMetadata.readFromFile(description).sstFiles
    } finally in.close()
  }

  /** Tells the driver that the store may come. */
  private def say(): Unit = if (!isSaid) {
    val ready = readyBlock(order, place)
    ShipmentBlocks.put(ready, Array[Byte](0))
    isSaid = true
    // The order may have been closed in between, and nobody else takes the block away then.
    if (!isWanted) ShipmentBlocks.removeHere(ready)
  }

  /** Gives the files to the store that is loaded from the snapshot of `version` into `into`; how many there were. */
  private def take(into: File, mapping: RocksDBFileMapping, version: Long): Int = synchronized {
    val files = if (isClosed) Nil else listed.filter(f => here.contains(f.dfsSstFileName))
    files.count { file =>
      val target = new File(into, file.localFileName)
      val isNew =
        try {
          Files.createLink(target.toPath, local(file.dfsSstFileName).toPath)
          true
        } catch {
          case _: FileAlreadyExistsException => false
          case _: UnsupportedOperationException | _: java.nio.file.FileSystemException =>
            Files.copy(local(file.dfsSstFileName).toPath, target.toPath)
            true
        }
      // As Spark does with a file that it has fetched for a version: it was there before.
      if (isNew) mapping.mapToDfsFile(file.localFileName, file, version - 1)
      isNew
    }
  }

  private def end(): Unit = {
    stores.remove(root.toString, this)
    synchronized {
      isClosed = true
      here.keys.foreach(free)
    }
    Utils.deleteRecursively(dir)
  }
}

private[sql] object WarmStore extends Logging {
  private val FollowMs = 5000L
  private val RetryMs = 1000L
  private val MaxFailures = 3

  private val stores = new ConcurrentHashMap[String, WarmStore]()

  private final class Stopped extends RuntimeException

  /** The block by which an executor says that the files of a store are there, or will not be. */
  def readyBlock(order: Long, place: Int): BlockId = BroadcastBlockId(order, s"_warm_$place")

  /** Begins to fetch the files of a store; called in a task on the executor that they are wanted on. */
  def begin(root: String, partition: Int, order: Long, place: Int, conf: BackgroundConf, hadoopConf: Configuration): Unit = {
    val store = new WarmStore(new Path(root), partition, order, place, conf, hadoopConf)
    Option(stores.put(root, store)).foreach(_.end())
    ShippingThreads.warming.execute(() => store.turn())
  }

  /**
   * Puts the files that are here of a store into the directory into which the snapshot of `version` is about to be loaded, so
   * that Spark takes those that it needs, and deletes the others; returns how many there are.
   *
   * Relies on Spark: a file of its name, which is mapped to the file in the checkpoint that the snapshot names, is not fetched.
   */
  private[binshift] def hand(root: String, into: File, mapping: RocksDBFileMapping, version: Long): Int =
    Option(stores.get(root)).fold(0) { store =>
      try store.take(into, mapping, version)
      catch {
        case NonFatal(e) =>
          logWarning(s"files of $root that were fetched ahead are fetched again", e)
          0
      } finally store.end()
    }
}
