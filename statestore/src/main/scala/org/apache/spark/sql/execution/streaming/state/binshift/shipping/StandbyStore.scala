package org.apache.spark.sql.execution.streaming.state.binshift.shipping

import java.io.{File, FileNotFoundException}
import java.nio.file.{Files, StandardCopyOption}
import java.util.concurrent.TimeUnit

import scala.util.control.NonFatal

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{EtagSource, FileStatus, Path}

import org.apache.spark.internal.Logging
import org.apache.spark.sql.execution.streaming.state.{RocksDBFileMapping, RocksDBSstFile}
import org.apache.spark.sql.execution.streaming.state.binshift.{Faults, Trace}
import org.apache.spark.sql.execution.streaming.state.binshift.checkpoint.VersionFile
import org.apache.spark.sql.execution.streaming.state.binshift.storage.FilesHere

/**
 * The files of a store that runs on another executor: those of the newest snapshot that is here as a whole, and the
 * changelogs since. When the store comes to this executor, because its own executor dies or its partition moves, it is loaded from them.
 *
 * Local files may be stale, partial or of an attempt that was repeated. So a load that takes a file compares what the
 * checkpoint's directory says of it with what it said when it was fetched; files of snapshots are immutable.
 *
 * Thread-safe: one thread at a time follows; the store's task takes.
 *
 * @param root the store's directory in the checkpoint
 */
private[shipping] final class StandbyStore(root: Path, val partition: Int, conf: StandbyConf, hadoopConf: Configuration)
  extends Logging {
  import StandbyStore._

  private val room = new FetchedFiles.Room(conf.maxBytes)
  private val files = new FetchedFiles(root, room, hadoopConf)

  /** The snapshot that is complete here, and the one that is being fetched. */
  private var held: Option[Snapshot] = None
  private var coming: Option[Snapshot] = None
  /** The local changelogs, by version and id. */
  private var changes = Map.empty[(Long, Option[String]), Changelog]
  /** Whether the checkpoint had no files of the store at the last look; `None` before the first. */
  private var isEmpty = Option.empty[Boolean]
  /** Since the files were last complete, and since a turn last succeeded. */
  private var failures = 0
  private var failuresInARow = 0

  /** True if a newer snapshot is being fetched. */
  def isFetching: Boolean = files.isOpen && synchronized(coming.isDefined)

  def bytes: Long = files.bytes + synchronized(changes.values.map(_.bytes).sum)

  def progress: StandbyProgress = synchronized {
    val begun = held.map(_.version).orElse(Option.when(isEmpty.isDefined && coming.isEmpty)(0L))
    val (base, version) =
      if (isEmpty.contains(true)) (Long.MaxValue, Long.MaxValue)
      else begun.fold((-1L, -1L)) { base =>
        val versions = changes.keySet.map(_._1)
        (base, Iterator.iterate(base)(_ + 1).takeWhile(v => v == base || versions(v)).foldLeft(base)((_, v) => v))
      }
    StandbyProgress(base, version, failures >= MaxFailures)
  }

  /**
   * Fetches the checkpoint's new files, for about `budgetMs` once it knows them. A failure only costs time.
   *
   * @return the milliseconds after which to look again, beside the usual ones
   */
  def follow(budgetMs: Long): Long = if (!files.isOpen) 0
  else {
    try {
      if (room.isScarce(files.dir)) throw new java.io.IOException(s"the disk of ${files.dir} is full")
      fetchNewest(budgetMs)
      failuresInARow = 0
      // Of several snapshots in a row, each may be purged before it is here.
      if (!isFetching) synchronized { failures = 0 }
      0
    } catch {
      case _: FetchedFiles.Unwanted => 0
      case NonFatal(e) if !files.isOpen =>
        logDebug(s"the standby of $root is not wanted any more", e)
        0
      // Even fatal errors are caught, because otherwise nobody would hear of them.
      case e: Throwable =>
        synchronized { failures = if (NonFatal(e)) failures + 1 else math.max(failures + 1, MaxFailures) }
        failuresInARow += 1
        // A file may have been purged while it was fetched, and then there is a newer snapshot.
        val text = s"the standby of $root could not follow, and tries again"
        if (failures == 2 || !NonFatal(e)) logWarning(text, e) else logDebug(text, e)
        try if (room.isScarce(files.dir)) forget()
        catch { case NonFatal(again) => logDebug(s"the disk of the standby of $root can't be used", again) }
        math.min(MaxBackOffMs, BackOffMs << math.min(failuresInARow - 1, 10))
    }
  }

  private def fetchNewest(budgetMs: Long): Unit = {
    val listed = list()
    val snapshots =
      listed.toSeq.collect { case (file, status) if file.isSnapshot => Snapshot(file.version, file.id, mark(status)) }
    // If several attempts made the same version, usually the last one is the committed one.
    val newest = snapshots.maxByOption(s => (s.version, s.mark.modifiedAt))
    synchronized {
      isEmpty = Some(listed.isEmpty)
      val unfit = (s: Snapshot) => !newest.exists(n => n.version > s.version || n.mark == s.mark)
      if (held.exists(unfit)) held = None
      // Purged between two turns, as if while it was fetched.
      if (coming.exists(c => !snapshots.exists(_.mark == c.mark))) failures += 1
      // A snapshot whose fetch has begun is finished; otherwise a store with frequent snapshots would never have one.
      coming = coming.filter(c => snapshots.exists(_.mark == c.mark)).orElse(newest.filterNot(n => held.exists(_.mark == n.mark)))
    }
    fetchChanges(listed)
    synchronized(coming).foreach { found =>
      val wanted = if (found.files.nonEmpty) found
      else found.copy(files = files.of(new Path(root, VersionFile.name(found.version, found.id, VersionFile.Snapshot))))
      synchronized {
        coming = Some(wanted)
        files.keepOnly(held.fold(Seq.empty[RocksDBSstFile])(_.files) ++ wanted.files)
      }
      val missing = wanted.files.iterator.filterNot(files.has)
      val deadlineNs = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(budgetMs)
      while (missing.hasNext && System.nanoTime() < deadlineNs) fetch(missing.next())
      if (wanted.files.forall(files.has)) become(wanted)
    }
  }

  private def become(snapshot: Snapshot): Unit = {
    Faults.at("standby.snapshot", partition)
    if (Trace.isOn) Trace("standby", root, "version" -> snapshot.version)
    synchronized {
      held = Some(snapshot)
      coming = None
      dropChanges(_._1 <= snapshot.version)
      files.keepOnly(snapshot.files)
    }
  }

  private def fetch(file: RocksDBSstFile): Unit = {
    if (!files.isOpen) throw new FetchedFiles.Unwanted
    Faults.at("standby.file", partition)
    files.fetch(file, conf.pieceBytes)(ShippingThreads.pace(_, conf.maxBytesPerSecond, areAllCoresBusy = false))
  }

  /** Changelogs since the older of the snapshots are few and small, and the next load waits for each that is not here. */
  private def fetchChanges(listed: Map[VersionFile, FileStatus]): Unit = {
    val from = synchronized(held.orElse(coming).fold(0L)(_.version))
    val there = changelogsOf(listed).filter { case ((version, _), _) => version > from }
    synchronized(dropChanges(key => !there.get(key).exists(t => changes(key).marks == t.marks)))
    there.toSeq.sortBy(_._1._1).foreach { case (key, changelog) =>
      if (!synchronized(changes.contains(key))) {
        if (!files.isOpen) throw new FetchedFiles.Unwanted
        Faults.at("standby.changelog", partition)
        room.require(changelog.bytes, files.dir)
        changelog.names.foreach { name =>
          val temporary = new File(files.dir, s"$name.part")
          try {
            files.copy(new Path(root, name), temporary, conf.pieceBytes)(
              ShippingThreads.charge(_, conf.maxBytesPerSecond, areAllCoresBusy = false))
            Files.move(temporary.toPath, new File(files.dir, name).toPath, StandardCopyOption.REPLACE_EXISTING)
          } finally Files.deleteIfExists(temporary.toPath)
        }
        synchronized {
          if (!files.isOpen) throw new FetchedFiles.Unwanted
          changes += key -> changelog
          ShippingThreads.standbyBytes.addAndGet(changelog.bytes)
        }
      }
    }
  }

  private def dropChanges(isUnwanted: ((Long, Option[String])) => Boolean): Unit = {
    val dropped = changes.filter { case (key, _) => isUnwanted(key) }
    changes --= dropped.keys
    dropped.values.foreach { changelog =>
      ShippingThreads.standbyBytes.addAndGet(-changelog.bytes)
      changelog.names.foreach(name => Files.deleteIfExists(new File(files.dir, name).toPath))
    }
  }

  /** The store is about to be loaded here; `None` if nothing of it is here. */
  def begin(): Option[FilesHere.Loading] = {
    Faults.at("standby.take", partition)
    if (bytes == 0) None else Some(new Take(list()))
  }

  /** Deletes the files. A load that is under way has its own links to the files that it uses. */
  def forget(): Unit = synchronized {
    isEmpty = None
    held = None
    coming = None
    dropChanges(_ => true)
    files.keepOnly(Nil)
  }

  def close(): Unit = synchronized {
    if (Trace.isOn) Trace("standby closed", root)
    files.close()
    dropChanges(_ => true)
  }

  private def list(): Map[VersionFile, FileStatus] =
    try files.fs.listStatus(root).toSeq.flatMap(s => VersionFile.parse(s.getPath.getName).map(_ -> s)).toMap
    catch { case _: FileNotFoundException => Map.empty }

  /** @param listed the checkpoint's directory when the load began */
  private final class Take(listed: Map[VersionFile, FileStatus]) extends FilesHere.Loading {
    private val there = changelogsOf(listed)
    private var isOver = false

    override def link(into: File, mapping: RocksDBFileMapping, version: Long): Seq[File] = StandbyStore.this.synchronized {
      // Names of local files are unique in a snapshot, not among snapshots.
      val best = Seq(held, coming).flatten.filter(_.version <= version).maxByOption(_.version)
      val linked = best.fold(Seq.empty[File])(s => files.link(s.files, into, mapping, version))
      if (Trace.isOn && linked.nonEmpty) Trace("files here", root, "version" -> version, "files" -> linked.size)
      linked
    }

    override def changelog(version: Long, id: Option[String]): Option[File] = StandbyStore.this.synchronized {
      val key = (version, id)
      val isSame = !isOver && changes.get(key).exists(c => there.get(key).exists(_.marks == c.marks) && isWhole(c))
      Option.when(isSame)(files.dir)
    }

    private def isWhole(c: Changelog): Boolean =
      c.names.zip(c.marks).forall { case (name, mark) => new File(files.dir, name).length == mark.bytes }

    override def close(isOk: Boolean): Unit = {
      isOver = true
      if (!isOk) {
        logWarning(s"a load from the standby of $root failed; the standby fetches its files again")
        forget()
      }
    }
  }
}

private[shipping] object StandbyStore {
  private val BackOffMs = 1000L
  private val MaxBackOffMs = 600000L
  /** After so many failures since the files were last complete, nobody waits for them any longer. */
  private val MaxFailures = 3

  /** Identifies the content of a file by what the checkpoint's directory says of it. Another content gives another mark. */
  private final case class Mark(bytes: Long, modifiedAt: Long, etag: Option[String])

  private def mark(status: FileStatus): Mark = Mark(status.getLen, status.getModificationTime,
    status match {
      case tagged: EtagSource => Option(tagged.getEtag)
      case _ => None
    })

  /** @param files of a snapshot whose list has been read */
  private final case class Snapshot(version: Long, id: Option[String], mark: Mark, files: Seq[RocksDBSstFile] = Nil)

  /** A changelog, and its checksum if there is one. */
  private final case class Changelog(names: Seq[String], marks: Seq[Mark]) {
    def bytes: Long = marks.map(_.bytes).sum
  }

  private def changelogsOf(listed: Map[VersionFile, FileStatus]): Map[(Long, Option[String]), Changelog] =
    listed.filter { case (file, _) => file.kind == VersionFile.Changelog }
      .groupBy { case (file, _) => (file.version, file.id) }
      .filter { case (_, found) => found.keys.exists(!_.isChecksum) }
      .map { case (key, found) =>
        val statuses = found.toSeq.sortBy(_._1.isChecksum).map(_._2)
        key -> Changelog(statuses.map(_.getPath.getName), statuses.map(mark))
      }
}
