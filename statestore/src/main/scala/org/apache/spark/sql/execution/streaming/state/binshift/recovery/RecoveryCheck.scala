package org.apache.spark.sql.execution.streaming.state.binshift.recovery

import java.util.concurrent.ConcurrentHashMap

import scala.annotation.tailrec

import org.apache.spark.sql.execution.streaming.state.binshift.BinshiftException
import org.apache.spark.sql.execution.streaming.state.binshift.checkpoint.{Lineage, VersionFile}
import org.apache.spark.sql.execution.streaming.state.binshift.routing.Owners

/**
 * Checks whether partitions can be rebuilt from the files in the checkpoint. It makes the [[RecoveryPlan]] by which a recovery
 * would go, and looks for each file of that plan, including all files of which a snapshot consists, and the snapshots that only say
 * which column families a changelog has.
 *
 * A cleanup may delete files during the check. So a missing file has to be confirmed (`RecoveryCheck.confirmed`).
 *
 * Thread-safe. It lists each store once, and reads the list of files of each snapshot that is a base.
 *
 * @param version     a committed version, which was the newest one when the check began
 * @param hasFamilies whether the stores have column families
 */
private[sql] final class RecoveryCheck(files: RetainedVersions.Files, version: Long, hasFamilies: Boolean) {
  import RecoveryCheck.Parts

  private val owners = files.owners(version)
  private val table = owners.table(owners.at(version))
  private val stores = new ConcurrentHashMap[Int, Store]()

  /** The partitions that own some of `bins` at the version. */
  def ownersOf(bins: Iterable[Int]): Set[Int] = bins.iterator.map(table.owner).toSet

  /** All partitions that own a bin at the version. */
  def all: Set[Int] = table.assignment.toSet

  /** The first missing file that keeps `partition` from being rebuilt; `None` if nothing is missing. */
  def missing(partition: Int): Option[String] = {
    val bins = table.binsOf.lift(partition).toSeq.flatten
    // A partition without bins begins empty, whatever files it has.
    if (version == 0 || bins.isEmpty) None
    else
      try {
        val Parts(bases, stretches, foreign) = partsOf(partition, bins)
        val numbered = if (hasFamilies) foreign.iterator else Iterator.empty
        (stretches.iterator.flatMap(s => store(s.partition).lacking(s.first, s.last)) ++
          bases.iterator.flatMap(s => store(s.partition).lackingOf(s.version)) ++
          numbered.flatMap(s => store(s.partition).lackingFamilies(s.first)) ++
          store(partition).lackingFor(version)).nextOption()
      } catch {
        case e: BinshiftException => Some(e.detail)
      }
  }

  /**
   * The files from which `partition` is rebuilt, each with the partition that has it. Under either of a store's snapshots there are
   * further files, which its list names.
   *
   * @param isBinned false if the rows of the store's operator stay where they are
   */
  def files(partition: Int, isBinned: Boolean): Set[(Int, VersionFile)] = {
    val bins = if (isBinned) table.binsOf.lift(partition).toSeq.flatten else Nil
    val Parts(bases, stretches, foreign) = partsOf(partition, bins)
    // The snapshot that says which column families a changelog has does so only if all changelogs in between are there.
    val numbered = for (s <- foreign; v <- store(s.partition).saysFamilies(s.first))
      yield Snapshot(s.partition, v) -> Stretch(s.partition, v + 1, s.first - 1)
    (bases ++ numbered.map(_._1)).map(s => s.partition -> store(s.partition).file(s.version, VersionFile.Snapshot)) ++
      (stretches ++ numbered.map(_._2)).flatMap(s =>
        (s.first to s.last).map(v => s.partition -> store(s.partition).file(v, VersionFile.Changelog)))
  }

  private def partsOf(partition: Int, bins: Seq[Int]): Parts = {
    // Spark loads the store from its newest snapshot, wherever its bins come from, or from the start if there is none.
    val base = store(partition).newest(version)
    val plan = RecoveryPlan.of(bins, partition, version, owners, store(_).newest(_))
    val loaded = base.getOrElse(0L)
    Parts(plan.bases.keySet ++ base.map(Snapshot(partition, _)), plan.stretches.keySet + Stretch(partition, loaded + 1, version),
      plan.foreign(partition, Some(loaded)).keySet)
  }

  private def store(partition: Int): Store = stores.computeIfAbsent(partition, p => new Store(p))

  /** Locks are per store, so a look at one store doesn't hold up looks at others. */
  private final class Store(partition: Int) {
    private lazy val committed = new CommittedFiles(
      partition, files.list(partition), Option.when(files.hasIds)(new Lineage(files.lineage(partition, _, _))), files, owners,
      version)

    def newest(at: Long): Option[Long] = synchronized(committed.newest(at))

    def lacking(first: Long, last: Long): Option[String] = synchronized(committed.lacking(first, last)).map(lost)

    def lackingOf(snapshot: Long): Option[String] = synchronized(committed.lackingOf(snapshot)).map(lost)

    def lackingFamilies(at: Long): Option[String] = Option.when(saysFamilies(at).isEmpty)(
      lost(s"a snapshot that says which column families version $at had,"))

    def saysFamilies(at: Long): Option[Long] = synchronized(committed.saysFamilies(at))

    def lackingFor(load: Long): Option[String] = synchronized(committed.lackingFor(load)).map(lost)

    /** A file that a plan has, of a version for which `newest` was asked. */
    def file(version: Long, kind: VersionFile.Kind): VersionFile = synchronized(committed.file(version, kind)).fold(
      unknown => throw BinshiftException("FILE_MISSING").state(s"$unknown of partition $partition is missing"), identity)

    private def lost(file: String): String = s"$file of partition $partition"
  }
}

private[sql] object RecoveryCheck {
  private val MaxTries = 3

  /**
   * From what a partition is rebuilt.
   *
   * @param foreign those of the stretches that the load of the store by Spark doesn't replay
   */
  private final case class Parts(bases: Set[Snapshot], stretches: Set[Stretch], foreign: Set[Stretch])

  /**
   * The partitions among `suspects` that still lack files, each with the missing file.
   *
   * A check lists one store after the other. In the meantime, one store may upload a snapshot, after which another one may delete
   * files that the plan still contains. And if few versions are retained, the checked version may no longer be among them at the
   * end. So the suspects are checked again as of the newest version, and the result counts only if that version is still retained
   * afterwards.
   *
   * @param suspects the findings of an earlier check
   * @param newest   returns the newest committed version
   * @param retained how many versions are retained
   * @param missing  checks partitions again, as of a version
   * @return `None` if newer versions overtook every try
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
 * The committed files of a store. It finds their ids in the commit log (for the newest version), in the copies that are kept with
 * switches, and in changelogs (for the versions before one of these).
 *
 * Used by one thread at a time.
 *
 * @param listed  the files in the store's directory
 * @param lineage of the store, under checkpoint format 2
 * @param owners  the owners as of `last`, the newest committed version
 */
private[recovery] final class CommittedFiles(
    partition: Int, listed: => Seq[VersionFile], lineage: Option[Lineage], files: RetainedVersions.Files, owners: => Owners,
    last: Long) {
  private lazy val names = listed.toSet
  private lazy val snapshots = new CommittedSnapshots(names.toSeq, lineage)

  /** The newest snapshot from which one gets to a committed version. */
  def newest(version: Long): Option[Long] = {
    know(version)
    snapshots.newest(version)
  }

  /** The newest of these that has all of its files, according to `isWhole`. */
  def newestWhole(version: Long)(isWhole: VersionFile => Boolean): Option[Long] = {
    know(version)
    snapshots.newestWhole(version)(file(_, VersionFile.Snapshot).exists(isWhole))
  }

  /**
   * The first missing changelog among versions `first` to `last`. `newest` must have been asked for a version at or after `last`.
   */
  def lacking(first: Long, last: Long): Option[String] =
    (first to last).iterator.map(file(_, VersionFile.Changelog)).collectFirst {
      case Left(unknown) => unknown
      case Right(there) if !names(there) => there.name
    }

  /** A missing file of `snapshot`, which `newest` has returned. */
  def lackingOf(snapshot: Long): Option[String] =
    file(snapshot, VersionFile.Snapshot).fold(Some(_), files.absent(partition, _).headOption)

  /** The snapshot that says which column families the changelog of `version` has, which is there. */
  def saysFamilies(version: Long): Option[Long] = {
    know(version)
    snapshots.connected(version).nextOption()
  }

  /**
   * A snapshot without which Spark doesn't load the store at `version`, for which `newest` was asked before.
   *
   * Relies on Spark: under checkpoint format 2, a load begins with one of the snapshots that the changelog of this one version names,
   * and doesn't look for those that earlier changelogs name.
   */
  def lackingFor(version: Long): Option[String] = for {
    ids <- lineage
    id <- ids.id(version)
    named = ids.namedBy(version).map(item => item.version -> item.checkpointUniqueId) :+ (version -> id)
    bases = named.map { case (v, of) => VersionFile(v, Some(of), VersionFile.Snapshot, isChecksum = false) }
    // A store that has no snapshot yet is loaded from its first changelog on.
    if bases.forall(_.version > 1) && !bases.exists(names)
  } yield bases.minBy(_.version).name

  private def know(version: Long): Unit = lineage.foreach { ids =>
    // Ids are known for versions at which bins moved, and for the newest one. This is the first of those from `version` on.
    val known = owners.changes(version).headOption.fold(last)(owners.epoch)
    if (!ids.knows(known)) ids.add(known, files.id(partition, known))
  }

  /** The name of a file. `newest` must have been asked for a version at or after this one. */
  def file(version: Long, kind: VersionFile.Kind): Either[String, VersionFile] = lineage match {
    case None => Right(VersionFile(version, None, kind, isChecksum = false))
    case Some(ids) => ids.id(version).map(id => VersionFile(version, Some(id), kind, isChecksum = false))
        .toRight(s"the changelog that says which attempt of version $version was committed")
  }
}
