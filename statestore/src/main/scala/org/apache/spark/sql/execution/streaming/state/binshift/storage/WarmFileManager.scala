package org.apache.spark.sql.execution.streaming.state.binshift.storage

import java.io.File

import scala.util.control.NonFatal

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path

import org.apache.spark.TaskContext
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.execution.streaming.state.binshift.Faults
import org.apache.spark.sql.execution.streaming.state.binshift.checkpoint.{ReaderThreads, Savepoints, VersionFile}

/**
 * Manages the checkpoint files of one partition. A load uses files of snapshots and changelogs that this executor has already.
 *
 * Such files can cost time, but never the query: a load that fails with them is repeated without them.
 *
 * Relies on Spark: a load calls `loadCheckpointFromDfs`, and opens the changelogs one by one through `getChangelogReader`. A file of a snapshot that is missing in the directory is fetched.
 *
 * Used by one thread at a time, that of the task that has the store.
 */
private[binshift] class WarmFileManager(
    dfsRootDir: String,
    localTempDir: File,
    hadoopConf: Configuration,
    codecName: String,
    loggingId: String,
    storeConf: StateStoreConf,
    fileChecksumEnabled: Boolean,
    fileChecksumThreadPoolSize: Option[Int])
  extends RocksDBFileManager(dfsRootDir, localTempDir, hadoopConf, codecName, loggingId, storeConf,
    fileChecksumEnabled, fileChecksumThreadPoolSize)
  with VersionedFiles with OwnSnapshots with OldVersions {

  protected final def directory: Path = new Path(dfsRootDir)
  protected final def hadoop: Configuration = hadoopConf
  protected final def scratch: File = localTempDir
  protected def partition: Int = Faults.AnyPartition

  private var here: Option[FilesHere] = None
  @volatile private var disowned: (Long, Boolean) => Boolean = (_, _) => false
  @volatile private var savepoints: Option[Savepoints] = None
  private var load: Option[WarmLoad] = None
  private var found = LoadedFiles.None
  /** Files that were linked for the loaded version. They stay suspect until it is committed: an unread block may be damaged. */
  private var unproven = Seq.empty[LinkedFile]
  /** True if the epoch of the loaded version ended for a reason that has nothing to do with these files. */
  private var isUnblamed = false

  /**
   * Makes loads use these files. Only for stores of a running query.
   *
   * @param isDisowned whether a later run makes a version again, even if its snapshot is written; called by tasks and maintenance threads
   * @param spares     the savepoints of the checkpoint
   */
  def use(files: FilesHere, isDisowned: (Long, Boolean) => Boolean, spares: Savepoints): Unit = {
    here = Some(files)
    disowned = isDisowned
    savepoints = Some(spares)
  }

  override protected def isDisowned(version: Long, isWritten: Boolean): Boolean = disowned(version, isWritten)

  /**
   * Decides which files go. As Spark does, this keeps the newest snapshot from which the oldest retained version can be loaded, and
   * everything after it.
   */
  override protected def oldVersions(retain: Int): Option[OldVersions.Decision] = {
    val listed = VersionFile.in(directory, hadoop)
    val snapshots = listed.filter(_.isSnapshot).map(_.version)
    def base = snapshots.maxOption.flatMap { newest =>
      val oldest = (newestWhole ++ Seq(newest - retain + 1)).min
      snapshots.filter(_ <= oldest).maxOption
    }
    for (spares <- savepoints; (from, isSpared) <- spares.sparing(_ => base))
      yield OldVersions.Decision(from, listed, isSpared)
  }

  /** The files that loads have used and fetched since the last call. */
  def takeLoadedFiles(): LoadedFiles = {
    val files = found
    found = LoadedFiles.None
    files
  }

  /** Called when the loaded version is committed, which shows that its files are good. */
  def proven(): Unit = unproven = Nil

  /**
   * Called when the loaded version was not committed. If the task was killed, or lost its input, that isn't evidence against the files.
   * When an executor dies, its shuffle files are lost, so tasks with standbys end in this way before the epoch is run again.
   *
   * Relies on Spark: `fetchFailed` is set before the store is told to abort.
   */
  def rolledBack(): Unit = isUnblamed = isEnding || Option(TaskContext.get()).exists(_.fetchFailed.isDefined)

  /** Runs `body`, in which Spark may load the store from the checkpoint. If that fails with these files, runs it again without them. */
  def loading(body: => Unit): Unit = {
    val now = new WarmLoad(here)
    load = Some(now)
    found = LoadedFiles.None
    try {
      body
      now.close(isOk = true)
    } catch {
      case NonFatal(e) if now.isUsed && !isEnding =>
        logWarning(s"$dfsRootDir could not be loaded with the files that were here already; all are fetched", e)
        now.giveUp()
        load = Some(new WarmLoad(None))
        found = LoadedFiles.None
        body
    } finally {
      // Nobody rolls back a load that was cut short.
      if (isEnding) isUnblamed = true
      now.close(isOk = isEnding)
      load = None
    }
  }

  /** True if the task is being killed, which isn't evidence against the files. */
  private def isEnding: Boolean =
    Thread.currentThread.isInterrupted || Option(TaskContext.get()).exists(_.isInterrupted())

  override def loadCheckpointFromDfs(
      version: Long,
      localDir: File,
      rocksDBFileMapping: RocksDBFileMapping,
      checkpointUniqueId: Option[String]): RocksDBCheckpointMetadata = loadingSnapshot(version, checkpointUniqueId) {
    val isAgain = unproven.nonEmpty && !isUnblamed
    isUnblamed = false
    if (isAgain) {
      // If a version has to be loaded again, these files may be the reason.
      unproven.foreach(_.remove())
      unproven = Nil
      load.foreach(_.giveUp())
    }
    val taken = if (version > 0 && !isAgain) load.fold(0)(_.link(localDir, rocksDBFileMapping, version)) else 0
    val metadata = super.loadCheckpointFromDfs(version, localDir, rocksDBFileMapping, checkpointUniqueId)
    val fetched = if (version > 0) latestLoadCheckpointMetrics.filesCopied.toInt else 0
    found = found + LoadedFiles(taken, fetched)
    metadata
  }

  override def getChangelogReader(version: Long, checkpointUniqueId: Option[String]): StateStoreChangelogReader =
    load.flatMap(_.changelog(version, checkpointUniqueId)) match {
      case Some(folder) =>
        found = found + LoadedFiles(here = 1, fetched = 0)
        load.get.reader(folder).getChangelogReader(version, checkpointUniqueId)
      case None =>
        if (load.isDefined) found = found + LoadedFiles(here = 0, fetched = 1)
        super.getChangelogReader(version, checkpointUniqueId)
    }

  /** One load, with the files for it. */
  private final class WarmLoad(files: Option[FilesHere]) {
    /** Evaluated when the first file is wanted, because most loads find the version loaded already. */
    private lazy val loading: Option[FilesHere.Loading] = {
      hasBegun = true
      orWarn(fetchedAgain, Option.empty[FilesHere.Loading])(files.flatMap(_.begin()))
    }
    private var hasBegun = false
    private var isClosed = false
    private var used = false
    private var links = Seq.empty[LinkedFile]
    private var readers = Map.empty[File, RocksDBFileManager]

    private def fetchedAgain = s"files of $dfsRootDir that are here already are fetched again"

    def isUsed: Boolean = used

    def link(into: File, mapping: RocksDBFileMapping, version: Long): Int =
      orWarn(fetchedAgain, 0) {
        val linked = loading.fold(Seq.empty[File])(_.link(into, mapping, version)).map(new LinkedFile(_, mapping))
        links ++= linked
        unproven ++= linked
        used ||= linked.nonEmpty
        linked.size
      }

    def changelog(version: Long, id: Option[String]): Option[File] = {
      val folder = loading.flatMap(_.changelog(version, id))
      used ||= folder.isDefined
      folder
    }

    def reader(folder: File): RocksDBFileManager = readers.getOrElse(folder, {
        val made = new RocksDBFileManager(folder.toURI.toString, localTempDir, hadoopConf, codecName, loggingId, storeConf,
          fileChecksumEnabled, Some(ReaderThreads.Size))
        readers += folder -> made
        made
      })

    /** Removes the linked files, so that the next load doesn't use them. */
    def giveUp(): Unit = {
      links.foreach(_.remove())
      unproven = unproven.diff(links)
      // Evaluated so that closing it makes the standby fetch its files again.
      loading.foreach(_ => ())
      close(isOk = false)
    }

    def close(isOk: Boolean): Unit = if (!isClosed) {
      isClosed = true
      readers.values.foreach(_.close())
      if (hasBegun) loading.foreach(_.close(isOk))
    }
  }
}

/**
 * A file that a load used, and Spark's mapping of it to a file of the checkpoint.
 *
 * Relies on Spark: a mapping stands for an existing local file. RocksDB may give the same name to another file of the same size, and
 * that file would count as uploaded.
 */
private final class LinkedFile(file: File, mapping: RocksDBFileMapping) {
  def remove(): Unit = {
    file.delete()
    mapping.remove(file.getName)
  }
}

/**
 * @param here    number of files of snapshots and changelogs that were on this executor before
 * @param fetched number of files that the load fetched from the checkpoint
 */
private[binshift] final case class LoadedFiles(here: Int, fetched: Int) {
  def +(more: LoadedFiles): LoadedFiles = LoadedFiles(here + more.here, fetched + more.fetched)
  def isEmpty: Boolean = here == 0 && fetched == 0
}

private[binshift] object LoadedFiles {
  val None: LoadedFiles = LoadedFiles(0, 0)
}
