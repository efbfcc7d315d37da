package org.apache.spark.sql.binshift.retention

import java.io.FileNotFoundException
import java.util.UUID
import java.util.concurrent.ConcurrentHashMap

import scala.annotation.tailrec
import scala.util.control.NonFatal

import org.apache.hadoop.fs.{FileStatus, FileSystem, Path}
import org.json4s.{JArray, JInt, JObject, JString}
import org.json4s.JsonDSL._

import org.apache.spark.sql.binshift.internals.QueryFailure
import org.apache.spark.sql.binshift.routing.{RunState, StatefulOperators}
import org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution
import org.apache.spark.sql.execution.streaming.state.{RocksDBConf, StateStoreConf, StateStoreId}
import org.apache.spark.sql.execution.streaming.state.binshift.{BinshiftException, Faults}
import org.apache.spark.sql.execution.streaming.state.binshift.checkpoint._
import org.apache.spark.sql.execution.streaming.state.binshift.recovery.{RecoveryCheck, RetainedVersions}
import org.apache.spark.sql.execution.streaming.state.binshift.routing.EpochRouting
import org.apache.spark.util.ThreadUtils

/**
 * Makes savepoints of the newest committed epoch of a query that runs, for clients that don't reach its checkpoint. They are the same
 * as those that `binshift.savepoints` makes of any query; see [[Savepoints]] for what keeps the files in place meanwhile.
 *
 * Called by threads of clients, and takes no lock, so no epoch waits for it.
 */
private[binshift] final class SavepointMaker(query: MicroBatchExecution, run: RunState, dir: ControlDir) {
  import SavepointMaker._

  private val root = dir.checkpoint
  private val stateRoot = new Path(root, "state").toString
  private lazy val fs: FileSystem = root.getFileSystem(dir.hadoopConf)

  /** Makes a savepoint; returns its id and the content of its file. */
  def make(name: String): (String, JObject) = {
    // Until then, the operators aren't known.
    if (run.now.epoch.isEmpty) throw QueryFailure.notPlanned(query)
    if (!name.matches(Form)) throw BinshiftException("INVALID_VALUE", "name" -> "name", "value" -> name).configuration(
      s"name '$name' is impossible; give up to 100 letters, digits, dots, dashes and underscores, the first a letter or a digit")
    if (new Savepoints(dir).names.contains(name)) throw BinshiftException("SAVEPOINT_EXISTS", "savepoint" -> name).configuration(
      s"$root has a savepoint $name already; choose another name, or drop that one")
    val begun = begin(name, Tries)
    try finish(begun)
    catch {
      case e: Throwable =>
        try forget(begun)
        catch { case NonFatal(other) => e.addSuppressed(other) }
        throw e
    }
  }

  /** Keeps everything, and looks then whether the epoch is still the newest one, whose files nobody has decided to delete. */
  @tailrec
  private def begin(name: String, tries: Int): Begun = {
    val epoch = newest()
    if (epoch < 0) throw BinshiftException("NO_EPOCH_COMMITTED", "checkpoint" -> root).configuration(
      s"$root has no committed epoch yet; let the query run one")
    if (tries == 0) throw BinshiftException("STORAGE_FAILED", "path" -> root).storage(
      s"epochs of $root are committed faster than a file is written there, so none of $Tries could be kept; give the query a " +
        "trigger interval, or try again")
    val begun = Begun(s"$epoch-${UUID.randomUUID()}", name, epoch, System.currentTimeMillis(), System.nanoTime())
    dir.write(begun.unfinished, begun.json)
    Faults.at("savepoint.begun")
    if (newest() == epoch) begun
    else {
      dir.delete(begun.unfinished)
      begin(name, tries - 1)
    }
  }

  private def finish(begun: Begun): (String, JObject) = {
    val routing = EpochRouting.forReader(stateRoot, dir.hadoopConf)
    val (files, oldest) = needed(begun.epoch + 1, routing)
    val copies = copiesOf(begun.epoch, oldest, routing)
    parallel(copies)(path => copy(path, s"${begun.folder}/$path"))
    val json = begun.json ~ ("copies" -> copies.sorted) ~ ("files" -> files.toSeq.sortBy(_._1).map { case (directory, there) =>
      ("directory" -> directory) ~ ("files" -> there.sortBy(_.getPath.getName).map(f =>
        JArray(List(JString(f.getPath.getName), JInt(f.getLen), JInt(f.getModificationTime)))))
    })
    dir.write(begun.finished, json)
    Faults.at("savepoint.finished")
    if (!fs.delete(new Path(dir.path, begun.unfinished), false))
      throw BinshiftException("SAVEPOINT_NOT_FOUND", "savepoint" -> begun.name)
        .configuration(s"savepoint ${begun.name} of $root was dropped while it was made; make it again")
    if (begun.seconds > MostSeconds) throw BinshiftException("STORAGE_FAILED", "path" -> root).storage(
      s"the savepoint ${begun.name} of $root was given up, because it took longer than $MostSeconds s to find its files; try again")
    (begun.id, json)
  }

  /** The files that a recovery of `version` reads, by their directories, and the oldest version of them. */
  private def needed(version: Long, routing: EpochRouting): (Map[String, Seq[FileStatus]], Long) = {
    val conf = RocksDBConf(StateStoreConf(query.sparkSessionForStream.sessionState.conf))
    val owners = routing.owners(version)
    val n = owners.table(owners.at(version)).partitions
    val layout = run.now.layout.fold(Map.empty[Long, OperatorLayout])(_.operators)
    val places = for {
      op <- run.now.operators
      id = StatefulOperators.idOf(op)
      storage = layout.get(id).fold[Storage](Storage.Plain)(_.storage)
      name <- op.stateStoreNames
      any = StateStoreId(stateRoot, id, 0, name)
      hasIds = routing.committedId(any, version).isDefined
      check = new RecoveryCheck(RetainedVersions.filesOf(any, routing, conf, dir.hadoopConf, hasIds), version,
        StatefulOperators.hasFamilies(op))
      p <- if (storage == Storage.Single) 0 until 1 else 0 until n
    } yield (any, check, storage == Storage.Binned, p)
    val versions = parallel(places) { case (any, check, isBinned, p) =>
      check.files(p, isBinned).toSeq.map { case (of, file) => any.copy(partitionId = of).storeCheckpointLocation() -> file }
    }.flatten.distinct
    val listed = new ConcurrentHashMap[Path, Map[String, FileStatus]]
    val found = parallel(versions) { case (place, file) =>
      val parts =
        if (file.isSnapshot)
          SnapshotList.filesOf(fs, place, file).map(name => new Path(place, SnapshotList.folderOf(name)) -> name)
        else Nil
      for ((folder, name) <- (place -> file.name) +: parts) yield relative(folder) ->
        listed.computeIfAbsent(folder, list(_).map(f => f.getPath.getName -> f).toMap)
          .getOrElse(name, throw missing(new Path(folder, name)))
    }.flatten.distinct
    (found.groupMap(_._1)(_._2), (versions.map(_._2.version) :+ version).min)
  }

  /**
   * The small files that are copied, because they are purged, or written over.
   *
   * Relies on Spark: descriptions of operators are beside their partitions, or in `_metadata` of the stores of partition 0. Metadata of
   * an epoch are in `_metadata/v2/<epoch>`. A query doesn't start without the offsets of its last two epochs.
   */
  private def copiesOf(epoch: Long, oldest: Long, routing: EpochRouting): Seq[String] = {
    val before = if (epoch > 0) Seq(epoch - 1) else Nil
    val there = Seq("offsets", "commits").flatMap(log => list(new Path(root, log)).map(f => s"$log/${f.getPath.getName}")).toSet
    val wanted = (before :+ epoch).map(e => s"offsets/$e") :+ s"commits/$epoch"
    wanted.filterNot(there).foreach(file => throw missing(new Path(root, file)))
    val logs = wanted ++ before.map(e => s"commits/$e").filter(there)
    val operators = directories(new Path(stateRoot)).flatMap { operator =>
      val partition = new Path(operator, "0")
      val stores = directories(partition).filterNot(d => NotStores(d.getName))
      directories(operator).filter(_.getName.toIntOption.isEmpty).flatMap(below) ++
        (partition +: stores).flatMap(store => below(new Path(store, Metadata)))
    }
    (logs ++ Seq("metadata") ++ below(new Path(root, "sources")).map(relative) ++ own(epoch, oldest, routing).map(
      "binshift/" + _) ++
      operators.filterNot(isLater(_, epoch)).map(relative)).filterNot(_.split('/').last.startsWith("."))
  }

  /** The files of binshift's by which the state of an epoch is found. Claims of runs name the tables of their first epochs. */
  private def own(epoch: Long, oldest: Long, routing: EpochRouting): Seq[String] = {
    val owners = routing.owners(epoch + 1)
    val entries = Iterator.iterate(0)(_ - 1).map(owners.entryAt).takeWhile(_.isDefined).flatten.filter(_.epoch <= epoch).toSeq
    // The first one that is older is still in force at the oldest version.
    val (since, older) = entries.span(_.epoch >= oldest)
    val tables = (since ++ older.headOption).map { e =>
      Seq(e.name.file, e.epoch.toString).map("routing/" + _).find(dir.exists).getOrElse(throw missing(new Path(dir.path,
            e.name.file)))
    }
    def began(n: Long) = RunHistory.readClaim(dir, n).fold(-1L)(_.epoch)
    Seq(Layout.File) ++ tables ++ dir.numbers(RunHistory.Dir).filter(began(_) <= epoch).map(n => s"${RunHistory.Dir}/$n") ++
      dir.numbers("ids").filter(v => oldest <= v && v <= epoch + 1).map(v => s"ids/$v") ++
      dir.numbers("changed_keys").map(op => s"changed_keys/$op") ++
      Seq("statistics.json", RunHistory.OldFile).filter(dir.exists)
  }

  private def isLater(file: Path, epoch: Long): Boolean =
    file.getParent.toString.endsWith(s"/$Metadata/v2") && file.getName.toLongOption.exists(_ > epoch)

  private def newest(): Long =
    list(new Path(root, "commits")).flatMap(_.getPath.getName.toLongOption).maxOption.getOrElse(-1L)

  private def copy(path: String, to: String): Unit = {
    val from = new Path(root, path)
    val in =
      try fs.open(from)
      catch { case _: FileNotFoundException => throw missing(from) }
    val bytes =
      try in.readAllBytes()
      finally in.close()
    dir.write(to, bytes)
  }

  private def forget(begun: Begun): Unit = {
    // The folder last, because the next savepoint deletes a folder without a file.
    Seq(begun.finished, begun.unfinished).foreach(dir.delete)
    fs.delete(new Path(dir.path, begun.folder), true): Unit
  }

  private def missing(file: Path): BinshiftException = BinshiftException("FILE_MISSING", "file" -> file).state(
    s"$file is missing; it may have been deleted since its epoch: try again, or check the checkpoint with `binshift fsck`")

  private def relative(file: Path): String = file.toUri.getPath.stripPrefix(root.toUri.getPath.stripSuffix("/") + "/")

  private def directories(of: Path): Seq[Path] = list(of).filter(_.isDirectory).map(_.getPath)

  private def below(folder: Path): Seq[Path] =
    list(folder).flatMap(f => if (f.isDirectory) below(f.getPath) else Seq(f.getPath))

  private def list(folder: Path): Seq[FileStatus] =
    try fs.listStatus(folder).toSeq
    catch { case _: FileNotFoundException => Nil }

  private def parallel[A, B](of: Seq[A])(f: A => B): Seq[B] =
    if (of.isEmpty) Nil else ThreadUtils.parmap(of, "binshift-savepoint", math.min(MaxThreads, of.size))(f)
}

private object SavepointMaker {
  private val Form = "[A-Za-z0-9][A-Za-z0-9._-]{0,99}"
  private val Metadata = "_metadata"
  private val NotStores = SnapshotList.folders.toSet + Metadata
  /** How often another epoch is tried, because epochs were committed faster than it could be begun. */
  private val Tries = 20
  /** The longest time that making one may take. Whoever deletes files waits for it twice as long. */
  private val MostSeconds = 1800L
  private val MaxThreads = 32

  /** A savepoint that keeps everything, until its files are known. */
  private final case class Begun(id: String, name: String, epoch: Long, atMs: Long, atNs: Long) {
    val folder: String = s"${Savepoints.Dir}/$id"
    val finished: String = s"$folder.json"
    val unfinished: String = s"$folder.begun.json"

    def json: JObject =
      ("format" -> Savepoints.FormatVersion) ~ ("name" -> name) ~ ("epoch" -> epoch) ~ ("made_at" -> ControlDir.timeOf(atMs))

    /** One clock stands still while the machine sleeps, and somebody may set the other back. */
    def seconds: Long = math.max((System.nanoTime() - atNs) / 1000000000L, (System.currentTimeMillis() - atMs) / 1000L)
  }
}
