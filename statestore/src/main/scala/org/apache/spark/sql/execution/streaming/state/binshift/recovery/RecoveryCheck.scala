package org.apache.spark.sql.execution.streaming.state.binshift.recovery

import java.util.concurrent.ConcurrentHashMap

import scala.annotation.tailrec

import org.apache.spark.sql.execution.streaming.state.binshift.BinshiftException
import org.apache.spark.sql.execution.streaming.state.binshift.checkpoint.{Lineage, VersionFile}
import org.apache.spark.sql.execution.streaming.state.binshift.routing.Owners

/**
 * Whether partitions can be rebuilt from the files that are there. It asks for the [[RecoveryPlan]] that a recovery would go by, and then
 * whether each file of that plan is listed, with all files that a snapshot consists of.
 *
 * A cleanup may delete files while this looks. So what it finds missing has to be confirmed (`RecoveryCheck.confirmed`).
 *
 * Thread-safe. Lists each store once, and reads the list of files of each snapshot that is a base.
 *
 * @param version which is committed, and was the newest one when the check began
 */
private[sql] final class RecoveryCheck(files: RetainedVersions.Files, version: Long) {
  private val owners = files.owners(version)
  private val table = owners.table(owners.at(version))
  private val stores = new ConcurrentHashMap[Int, Store]()

  /** Those that own some of `bins` at the version. */
  def ownersOf(bins: Iterable[Int]): Set[Int] = bins.iterator.map(table.owner).toSet

  /** All that own a bin at the version. */
  def all: Set[Int] = table.assignment.toSet

  /** The first thing found that keeps `partition` from being rebuilt; `None` if nothing does. */
  def missing(partition: Int): Option[String] = {
    val bins = table.binsOf.lift(partition).toSeq.flatten
    // One without bins begins empty, whatever it has.
    if (version == 0 || bins.isEmpty) None
    else
      try {
        // Spark loads the store itself from its newest snapshot on, wherever its bins come from; without any, from the start.
        val base = store(partition).newest(version)
        val plan = RecoveryPlan.of(bins, partition, version, owners, store(_).newest(_))
        val bases = (plan.bases.keySet ++ base.map(Snapshot(partition, _))).iterator
        val stretches = (plan.stretches.keySet + Stretch(partition, base.getOrElse(0L) + 1, version)).iterator
        (stretches.flatMap(s => store(s.partition).lacking(s.first, s.last)) ++
          bases.flatMap(s => store(s.partition).lackingOf(s.version))).nextOption()
      } catch {
        case e: BinshiftException => Some(e.detail)
      }
  }

  private def store(partition: Int): Store = stores.computeIfAbsent(partition, p => new Store(p))

  /** One that is being looked at waits for nobody but those who look at the same store. */
  private final class Store(partition: Int) {
    private lazy val committed = new CommittedFiles(
      partition, files.list(partition), Option.when(files.hasIds)(new Lineage(files.lineage(partition, _, _))), files, owners,
      version)

    def newest(at: Long): Option[Long] = synchronized(committed.newest(at))

    def lacking(first: Long, last: Long): Option[String] = synchronized(committed.lacking(first, last)).map(lost)

    def lackingOf(snapshot: Long): Option[String] = synchronized(committed.lackingOf(snapshot)).map(lost)

    private def lost(file: String): String = s"$file of partition $partition"
  }
}

private[sql] object RecoveryCheck {
  private val MaxTries = 3

  /**
   * What is missing of the partitions for which a check has found something, by partition.
   *
   * A check lists one store after the other. Meanwhile a store may upload a snapshot, and another one may then delete what the plan
   * of the check still reads. And if few versions are retained, the version that is checked may not be by the end. So the
   * partitions in question are checked once more, as of the newest version, which has to be retained afterwards.
   *
   * @param suspects what a check has found
   * @param newest   the newest committed version
   * @param retained how many versions are
   * @param missing  checks partitions anew, as of a version
   * @return `None` if the versions were overtaken each time
   */
  @tailrec
  def confirmed(suspects: Map[Int, String], newest: () => Long, retained: Int, tries: Int = MaxTries)(
      missing: (Long, Set[Int]) => Map[Int, String]): Option[Map[Int, String]] = {
    val version = newest()
    val found = if (suspects.isEmpty) suspects else missing(version, suspects.keySet)
    if (found.isEmpty || newest() - version < retained) Some(found)
    else if (tries == 1) None
    else confirmed(found, newest, retained, tries - 1)(missing)
  }
}

/**
 * The committed files of a store, whose ids are found where they are kept: in the commit log for the newest version, or
 * with a switch, and in changelogs for the versions before one of these.
 *
 * Used by one thread at a time.
 *
 * @param listed  what is in the store's directory
 * @param lineage of the store, under checkpoint format 2
 * @param owners  those of `last`, the newest committed version
 */
private[recovery] final class CommittedFiles(
    partition: Int, listed: => Seq[VersionFile], lineage: Option[Lineage], files: RetainedVersions.Files, owners: => Owners,
    last: Long) {
  private lazy val names = listed.toSet
  private lazy val snapshots = new CommittedSnapshots(names.toSeq, lineage)

  /** The newest snapshot that led to a version, which is committed. */
  def newest(version: Long): Option[Long] = {
    know(version)
    snapshots.newest(version)
  }

  /** The first changelog that is not there, of versions that led to one for which `newest` was asked. */
  def lacking(first: Long, last: Long): Option[String] =
    (first to last).iterator.map(file(_, VersionFile.Changelog)).collectFirst {
      case Left(unknown) => unknown
      case Right(there) if !names(there) => there.name
    }

  /** A file that `snapshot`, which is the newest one of some version, consists of and that is not there. */
  def lackingOf(snapshot: Long): Option[String] =
    file(snapshot, VersionFile.Snapshot).fold(Some(_), files.absent(partition, _).headOption)

  private def know(version: Long): Unit = lineage.foreach { ids =>
    // The first version from there on whose ids are known: bins moved at it, or it is the newest one.
    val known = owners.changes(version).headOption.fold(last)(owners.epoch)
    if (!ids.knows(known)) ids.add(known, files.id(partition, known))
  }

  private def file(version: Long, kind: VersionFile.Kind): Either[String, VersionFile] = lineage match {
    case None => Right(VersionFile(version, None, kind, isChecksum = false))
    case Some(ids) => ids.id(version).map(id => VersionFile(version, Some(id), kind, isChecksum = false))
        .toRight(s"the changelog that says which attempt of version $version was committed")
  }
}
