package org.apache.spark.sql.execution.streaming.state.binshift

import scala.collection.immutable.ArraySeq
import scala.collection.mutable
import scala.util.Random

import org.apache.spark.sql.execution.streaming.state.LineageItem
import org.apache.spark.sql.execution.streaming.state.binshift.checkpoint.{EntryName, Lineage, VersionFile}
import org.apache.spark.sql.execution.streaming.state.binshift.recovery._
import org.apache.spark.sql.execution.streaming.state.binshift.routing._
import org.apache.spark.sql.execution.streaming.state.binshift.storage.OldVersions

/** Random lives of checkpoints, without files: what is deleted, and whether each retained version can be recovered. */
object TestRetention {
  /**
   * Lives as many checkpoints, and returns what could not be recovered, or was kept too long, with the events before.
   *
   * @param wrong a wrong rule that is followed: "files are not shared"; none if empty
   */
  def faults(first: Long, lives: Int, events: Int, hasIds: Boolean, wrong: String): String = {
    val all = (first until first + lives).map(seed => seed -> new CheckpointLife(seed, hasIds, wrong))
    val found = all.flatMap { case (seed, life) => life.faultsIn(events).map(f => s"seed $seed: $f") }
    // Else the lives would not tell whether a look has to be confirmed.
    (found ++ Option.when(all.forall(_._2.overtaken == 0))("no look was overtaken")).mkString("\n")
  }

  /**
   * Lives of one or two partitions that seldom come about by chance: attempts get into each other's way. Returns what could not be recovered.
   *
   * @param wrong "own attempts count", "own files may go", or "snapshots are whole"; none if empty
   */
  def faultsOfAttempts(hasIds: Boolean, wrong: String): String = {
    def life(retain: Int) = new CheckpointLife(0, hasIds, wrong, Some(retain))
    Seq(life(1).ownAttempt(), life(1).ownFiles(), life(3).lateSnapshot(), life(1).lostFile()).flatten.mkString("\n")
  }
}

/**
 * The checkpoint of one operator, of at most four partitions and six bins. Commits, attempts that are not committed, speculative
 * twins, snapshots that are uploaded at once, late or never and have files in common, switches, savepoints, cleanups, also by stores
 * that are elsewhere by now, drivers that die, and winding back.
 */
private final class CheckpointLife(seed: Long, hasIds: Boolean, wrong: String, retained: Option[Int] = None) {
  private val random = new Random(seed)
  /** True if attempts often get into each other's way: few versions are retained, tasks run twice, and uploads are late. */
  private val isTight = random.nextInt(4) == 0
  private val retain = retained.getOrElse(1 + random.nextInt(if (isTight) 3 else 10))
  private val every = if (retained.isDefined) 1 else 1 + random.nextInt(6)
  /** True if the store has column families. A commit that makes a family makes a snapshot, which exists at once. */
  private val hasFamilies = random.nextBoolean()
  private val entries = mutable.TreeMap(0L -> drawnTable())
  private val there = mutable.Map.empty[Int, mutable.Set[VersionFile]]
  /** The files of which each snapshot that is there consists, and those that there are. */
  private val parts = mutable.Map.empty[(Int, VersionFile), Set[String]]
  private val partsThere = mutable.Set.empty[String]
  private val said = mutable.Map.empty[(Int, Long, String), Seq[LineageItem]]
  /** The ids of each partition at each version, as they were committed. */
  private val committed = mutable.TreeMap(0L -> Map.empty[Int, String])
  private val logged = mutable.TreeMap.empty[Long, Map[Int, String]]
  private val keptIds = mutable.TreeMap.empty[Long, Map[Int, String]]
  private val late = mutable.ArrayBuffer.empty[(Int, VersionFile, Made)]
  private val stores = mutable.Map.empty[Int, Store]
  private val stale = mutable.Buffer.empty[(Int, Store)]
  private var retired = mutable.Map.empty[Int, RetainedVersions]
  private var last = 0L
  private var floor = 1L
  private var ids = 0
  /** The versions of savepoints, with the files that they keep. */
  private val savepoints = mutable.Buffer.empty[(Long, Set[(Int, VersionFile)])]
  /** What the last cleanup knew of them. */
  private var lastKept = Set.empty[(Int, VersionFile)]
  /** What the recoveries have asked for that were looked at last. */
  private val asked = mutable.Set.empty[(Int, VersionFile)]
  private val falseAlarms = mutable.Buffer.empty[String]
  /** How often a look was misled by what happened meanwhile. */
  var overtaken = 0
  /** How many stores that are elsewhere by now may clean up: the latest, because others know no more. */
  private val MostStale = 6
  private val history = mutable.Buffer(s"retain $retain, every $every, table ${entries(0)}")

  def faultsIn(events: Int): Option[String] = {
    val found = Iterator.range(0, events).flatMap { _ =>
      event()
      unreadable.orElse(checkedWrongly).orElse(overtakenLook).orElse(falseAlarms.headOption)
    }.nextOption().orElse {
      // In the end, files that nobody reads are gone.
      savepoints.clear()
      for (_ <- 0 until 3 * (retain + every)) {
        epoch(isCommitted = true, isUploaded = true)
        cleanAll()
      }
      unreadable.orElse(keptTooLong)
    }
    found.map(f => s"$f\n  ${history.mkString("\n  ")}")
  }

  /** A task has made a snapshot, and its twin is committed. */
  def ownAttempt(): Option[String] = scripted {
    commit(Set.empty, isLate = false)
    val loser = new Store(0, isNew = false)
    val (id, file) = log(0, loser, isNew = false)
    upload(0, file(VersionFile.Snapshot), new Made(loser, Set.empty, s"file$ids"))
    if (wrong == "own attempts count") loser.retained.committed(last + 1, Some(id))
    commit(Set.empty, isLate = true)
    clean(0, loser)
  }

  /** A snapshot of another attempt comes late, and has no files in common with those that the store knows. */
  def ownFiles(): Option[String] = scripted {
    commit(Set.empty, isLate = false)
    commit(Set.empty, isLate = true)
    restart()
    open()
    late.foreach { case (p, file, made) => upload(p, file, made) }
    late.clear()
    commit(Set.empty, isLate = true)
    clean(0, stores(0))
    commit(Set("file1"), isLate = false)
    commit(Set.empty, isLate = true)
  }

  /** A snapshot is uploaded when files of it are gone. */
  def lateSnapshot(): Option[String] = scripted {
    commit(Set.empty, isLate = false)
    commit(Set.empty, isLate = true)
    restart()
    open()
    commit(Set("file1"), isLate = true)
    val Seq(own, shared) = late.toSeq
    (upload _).tupled(own)
    restart()
    open()
    commit(Set.empty, isLate = true)
    commit(Set.empty, isLate = false)
    commit(Set.empty, isLate = true)
    clean(0, stores(0))
    (upload _).tupled(shared)
    clean(0, stores(0))
  }

  /** All bins have moved, and a file is lost of the first snapshot of their new owner. */
  def lostFile(): Option[String] = scripted {
    entries(0) = RoutingTable(2, ArraySeq.fill(6)(0))
    commit(Set.empty, isLate = false, partitions = 2)
    commit(Set.empty, isLate = true, partitions = 2)
    entries(2) = RoutingTable(2, ArraySeq.fill(6)(1))
    keptIds(2) = committed(2)
    commit(Set.empty, isLate = true, partitions = 2)
    commit(Set.empty, isLate = true, partitions = 2)
    restart()
    late.takeRight(2).foreach((upload _).tupled)
    partsThere --= parts(1 -> snapshotOf(1, last))
    commit(Set.empty, isLate = true, partitions = 2)
    clean(0, stores(0))
  }

  private def scripted(life: => Unit): Option[String] = {
    entries(0) = RoutingTable(1, ArraySeq.fill(6)(0))
    life
    unreadable.map(f => s"$f\n  ${history.mkString("\n  ")}")
  }

  private def open(): Unit = stores(0) = new Store(0, isNew = false)

  /** An epoch in which each partition makes a snapshot of `old`, which are files of the store, and a new one. */
  private def commit(old: Set[String], isLate: Boolean, partitions: Int = 1): Unit = committed {
    (0 until partitions).map { p =>
      val store = stores.getOrElseUpdate(p, new Store(p, isNew = last == 0))
      val (id, file) = log(p, store, isNew = false)
      val made = (p, file(VersionFile.Snapshot), new Made(store, old, s"file$ids"))
      history += s"partition $p logs version ${last + 1} as $id"
      if (isLate) late += made else (upload _).tupled(made)
      p -> id
    }.toMap
  }

  private def event(): Unit = random.nextInt(24) match {
    case 0 | 1 => switch()
    case 2 =>
      epoch(isCommitted = false, isUploaded = false)
      if (random.nextBoolean()) restart()
    case 3 if last > 0 => windBack()
    case 4 => restart()
    case 5 => stores.keys.toSeq.foreach(p => if (random.nextInt(3) == 0) stale += p -> stores.remove(p).get)
    case 6 | 7 | 8 | 9 => clean()
    case 10 | 13 | 14 => uploadLate()
    case 11 => savepoint()
    case 12 if savepoints.nonEmpty => savepoints.remove(random.nextInt(savepoints.size))
    case _ => epoch(isCommitted = true, isUploaded = false)
  }

  private def savepoint(): Unit = if (last > 0) {
    asked.clear()
    val table = owners(last).table(owners(last).at(last))
    for (p <- 0 until table.partitions) faultOf(p, last, table.binsOf(p).toSeq)
    savepoints += last -> asked.filter { case (p, file) => there.get(p).exists(_(file)) }.toSet
    history += s"savepoint of version $last"
  }

  private def kept: Set[(Int, VersionFile)] = savepoints.flatMap(_._2).toSet

  private def drawnTable(): RoutingTable = {
    val n = 1 + random.nextInt(if (isTight) 2 else 4)
    RoutingTable(n, ArraySeq.fill(6)(random.nextInt(n)))
  }

  private def owners(version: Long): Owners = {
    val there = mutable.Map.empty[EntryName, RoutingEntry]
    val newest = entries.rangeTo(version - 1).foldLeft(Option.empty[RoutingEntry]) { case (before, (epoch, table)) =>
      val entry = RoutingEntry(epoch, table, before.map(_ => StepRef("m", 0, 1, "s", 1)), before.map(_.name), "run", 0)
      there(entry.name) = entry
      Some(entry)
    }
    new Owners(Vector(newest.get), there.get)
  }

  private def switch(): Unit = if (last > 0 && !entries.contains(last)) {
    entries(last) = drawnTable()
    keptIds(last) = committed(last)
    history += s"table ${entries(last)} from epoch $last on"
  }

  /** Epoch `last`, which makes the version after it. */
  private def epoch(isCommitted: Boolean, isUploaded: Boolean): Unit = {
    val table = entries.rangeTo(last).last._2
    val before = entries.rangeTo(last - 1).lastOption.map(_._2)
    val made = (0 until table.partitions).map { p =>
      val isNew = before.forall(_.partitions <= p) && last > 0
      val twin = Option.when(random.nextInt(if (isTight) 2 else 6) == 0)(new Store(p, isNew))
      val attempts =
        (stores.getOrElseUpdate(p, new Store(p, isNew)) +: twin.toSeq).map(s => s -> attempt(p, s, isNew, isUploaded))
      val (winner, now) = attempts(random.nextInt(attempts.size))
      for ((loser, _) <- attempts if loser ne winner) stale += p -> loser
      stores(p) = winner
      p -> now
    }.toMap
    history += s"epoch $last ${if (isCommitted) "committed" else "given up"} as ${made.toSeq.sorted.mkString(" ")}"
    if (isCommitted) committed(made)
  }

  private def committed(made: Map[Int, String]): Unit = {
    last += 1
    committed(last) = made
    logged(last) = made
    // Spark keeps so many epochs behind the one that runs.
    logged.filterInPlace((v, _) => v >= last - retain)
    floor = math.max(floor, last - retain + 1)
  }

  /** Has a store log the version after `last`, and returns its id, and the files of that attempt. */
  private def log(p: Int, store: Store, isNew: Boolean): (String, VersionFile.Kind => VersionFile) = {
    val id = if (isNew) None else committed(last).get(p)
    if (last > 0) store.retained.committed(last, if (hasIds) id.orElse(Some("new")) else None)
    ids += 1
    val now = s"id$ids"
    val file = VersionFile(last + 1, Option.when(hasIds)(now), _: VersionFile.Kind, isChecksum = false)
    if (!isNew) {
      there.getOrElseUpdate(p, mutable.Set.empty) += file(VersionFile.Changelog)
      // Back to the last snapshot, or to one before that if the store has not heard yet that it was uploaded.
      val behind = behindLast(p)
      val known = behind.indexWhere(v => store.whole(snapshotOf(p, v)))
      said((p, last + 1, now)) = behind.take(if (known < 0) behind.size else known + 1 + random.nextInt(every))
        .map(v => LineageItem(v, committed(v)(p)))
    }
    (now, file)
  }

  /** Makes the version after `last` in a store, and returns its id. */
  private def attempt(p: Int, store: Store, isNew: Boolean, isUploaded: Boolean): String = {
    val (now, file) = log(p, store, isNew)
    def snapshot = new Made(store, store.files.filter(_ => random.nextBoolean()), s"file$ids")
    if (isNew) upload(p, file(VersionFile.Snapshot), snapshot)
    else {
      if (last == 0 && hasFamilies || isUploaded) upload(p, file(VersionFile.Snapshot), snapshot)
      else if (random.nextInt(every) == 0) {
        if (random.nextInt(if (isTight) 4 else 2) == 0) upload(p, file(VersionFile.Snapshot), snapshot)
        else if (random.nextInt(3) > 0) late += ((p, file(VersionFile.Snapshot), snapshot))
      }
    }
    now
  }

  private def behindLast(p: Int): Seq[Long] =
    Iterator.iterate(last)(_ - 1).takeWhile(v => v > 0 && committed(v).contains(p)).toSeq

  /** Under format 1, the last attempt wins. It isn't drawn that files of that one are gone, which can be a loss; see record 0142. */
  private def upload(p: Int, file: VersionFile, made: Made): Unit = {
    val files = there.getOrElseUpdate(p, mutable.Set.empty)
    val gone = (made.old -- partsThere).toSeq.sorted
    if (!files(file) || gone.isEmpty) {
      files += file
      parts((p, file)) = made.old + made.own
      partsThere += made.own
      made.by.knows(file, made.old + made.own)
      history += s"partition $p has ${file.name} of ${(made.old + made.own).toSeq.sorted.mkString(" ")}" +
        (if (gone.isEmpty) "" else s", without ${gone.mkString(" ")}")
    }
  }

  private def uploadLate(): Unit = {
    val (now, later) = late.toSeq.partition(_ => random.nextBoolean())
    late.clear()
    late ++= later
    // A store uploads its newest snapshot only. One may come so late that files of it are gone.
    for ((p, file, made) <- now if made.by.newest < file.version) upload(p, file, made)
  }

  /** A store on some executor. */
  private final class Store(p: Int, isNew: Boolean) {
    val retained: RetainedVersions = retainedOf(p)
    /** The files of its newest snapshot in the checkpoint, which it doesn't upload again. */
    var files = Set.empty[String]
    var newest = 0L
    /** Those that it takes for whole. */
    val whole = mutable.Set.empty[VersionFile]

    def knows(snapshot: VersionFile, of: Set[String]): Unit = {
      newest = snapshot.version
      files = of
      whole += snapshot
    }

    // It begins with the newest one that can be loaded.
    if (!isNew) behindLast(p).iterator.map(snapshotOf(p, _)).find(isWhole(p, _)).foreach(f => knows(f, parts((p, f))))
  }

  private def snapshotOf(p: Int, version: Long): VersionFile =
    VersionFile(version, Option.when(hasIds)(committed(version)(p)), VersionFile.Snapshot, isChecksum = false)

  /** A snapshot of a store, with files of older ones that it knows, and one of its own. */
  private final class Made(val by: Store, val old: Set[String], val own: String)

  private def restart(): Unit = {
    history += "restart"
    stale ++= stores
    stores.clear()
    retired.clear()
  }

  private def windBack(): Unit = {
    val to = math.max(floor, last - random.nextInt(retain))
    // Without ids in names, such a start is refused.
    if (to <= last && logged.contains(to) && (hasIds || savepoints.forall(_._1 <= to))) {
      history += s"wound back to version $to"
      last = to
      for (of <- Seq(committed, logged, keptIds)) of.filterInPlace((v, _) => v <= to)
      entries.filterInPlace((e, _) => e < to)
      if (!hasIds) {
        there.values.foreach(_.filterInPlace(_.version <= to))
        late.filterInPlace(_._2.version <= to)
      }
      restart()
    }
  }

  private def clean(): Unit = {
    val some = random.shuffle(stores.toSeq ++ (if (random.nextInt(3) == 0) stale.takeRight(MostStale) else Nil)).headOption
    some.foreach { case (p, store) => clean(p, store) }
    cleanRetired()
  }

  private def cleanAll(): Unit = {
    stores.foreach { case (p, store) => clean(p, store) }
    cleanRetired()
  }

  private def clean(p: Int, store: Store): Unit = {
    val retained = store.retained
    val listed = there.get(p).toSeq.flatten
    // One that is elsewhere by now knows of versions that are not retained any more, or were wound back.
    for (version <- retained.newestCommitted if stores.get(p).contains(store);
      lost <- triedOr(Option.empty[String])(retained.lacking(listed, version)))
      falseAlarms += s"partition $p is said to lack $lost"
    val spared = lastKept
    val asWell = Option.when(wrong != "own files may go" && store.newest > 0)(store.newest)
    for (from <- triedOr(Option.empty[Long])(retained.keptFrom(listed, retain, asWell, f => spared((p, f))))) {
      history += s"partition $p is kept from $from on"
      lastKept = kept
      val OldVersions.Parted(gone, _, unused, _) =
        OldVersions.part(listed, from, f => spared((p, f)) || lastKept((p, f))) {
          f => if (wrong == "files are not shared" && f.version >= from) Nil else parts((p, f)).toSeq
        }
      there(p) --= gone
      partsThere --= unused
    }
  }

  private def cleanRetired(): Unit = {
    val oldest = last - retain
    if (oldest > 0) {
      val used = (entries.rangeTo(oldest).lastOption ++ entries.rangeFrom(oldest)).map(_._2.partitions).max
      for (p <- there.keys.toSeq if p >= used) {
        val retained = retired.getOrElseUpdate(p, retainedOf(p))
        val spared = lastKept
        if (triedOr(Option(0L))(retained.neededByOthers(there(p).toSeq, oldest + 1, last, f => spared((p, f)))).isEmpty) {
          history += s"partition $p is gone"
          lastKept = kept
          there(p).filterInPlace(f => spared((p, f)) || lastKept((p, f)))
          if (there(p).isEmpty) there -= p
          // It is closed, so files that come late belong to nobody.
          stores.remove(p).foreach(stale += p -> _)
        }
      }
    }
  }

  /** Returns `otherwise` if something isn't known, because then all files have to be kept. */
  private def triedOr[T](otherwise: T)(body: => T): T =
    try body
    catch { case _: NoSuchElementException => otherwise }

  private def retainedOf(p: Int): RetainedVersions = new RetainedVersions(p, filesOfAll)

  private val filesOfAll = new RetainedVersions.Files {
    override def hasIds: Boolean = CheckpointLife.this.hasIds
    override def list(partition: Int): Seq[VersionFile] = there.get(partition).toSeq.flatten
    override def owners(version: Long): Owners = CheckpointLife.this.owners(version)
    override def id(partition: Int, version: Long): String = known(partition, version)
    override def lineage(partition: Int, version: Long, id: String): Seq[LineageItem] = read(partition, version, id)
    override def absent(partition: Int, snapshot: VersionFile): Seq[String] =
      if (!list(partition).contains(snapshot)) Seq(snapshot.name)
      else if (wrong == "snapshots are whole") Nil
      else (parts((partition, snapshot)) -- partsThere).toSeq
  }

  private def known(partition: Int, version: Long): String = logged.getOrElse(version, keptIds(version))(partition)

  private def read(partition: Int, version: Long, id: String): Seq[LineageItem] =
    if (has(partition, version, id, VersionFile.Changelog)) said((partition, version, id)) else Nil

  private def has(partition: Int, version: Long, id: String, kind: VersionFile.Kind): Boolean = {
    isWhole(partition, VersionFile(version, Option.when(hasIds)(id), kind, isChecksum = false))
  }

  /** True if a file is there, with all files of which it consists. */
  private def isWhole(partition: Int, file: VersionFile): Boolean =
    there.get(partition).exists(_(file)) && parts.get((partition, file)).forall(_.subsetOf(partsThere))

  /** A retained version that cannot be recovered, by what a recovery does and by what is known of the attempts. */
  private def unreadable: Option[String] = (for {
    version <- floor to last
    table = owners(version).table(owners(version).at(version))
    p <- 0 until table.partitions if table.sizes(p) > 0
    fault <- faultOf(p, version, table.binsOf(p).toSeq)
  } yield s"version $version of partition $p: $fault").headOption

  /** @param isStrict whether a snapshot that lacks files is a fault, although one can do without it */
  private def faultOf(p: Int, version: Long, bins: Seq[Int], isStrict: Boolean = false): Option[String] = {
    val lineages = mutable.Map.empty[Int, Lineage]
    def newest(of: Int, at: Long): Option[Long] = {
      val lineage = Option.when(hasIds)(lineages.getOrElseUpdate(of, new Lineage(read(of, _, _))))
      // Ids are known for versions at which bins moved.
      val named = owners(version).changes(at).headOption.fold(version)(owners(version).epoch)
      lineage.filter(!_.knows(named)).foreach(_.add(named, known(of, named)))
      // A recovery passes over a snapshot that lacks files, and so does Spark's load.
      new CommittedSnapshots(there.get(of).toSeq.flatten.filter(isStrict || isWhole(of, _)), lineage).newest(at)
    }
    def lacks(of: Int, at: Long, kind: VersionFile.Kind): Option[String] = {
      committed(at).get(of).foreach(id => asked += of -> VersionFile(at, Option.when(hasIds)(id), kind, isChecksum = false))
      Option.when(!committed(at).get(of).exists(has(of, at, _, kind)))(s"partition $of lacks its $kind of version $at")
    }
    try {
      // Spark loads the store itself from there on; one that never had a snapshot, from the start.
      val base = newest(p, version)
      val own = base.flatMap(lacks(p, _, VersionFile.Snapshot)) ++
        (base.getOrElse(0L) + 1 to version).flatMap(lacks(p, _, VersionFile.Changelog))
      // It finds only those snapshots that the changelog of this one version names.
      def named = read(p, version, committed(version)(p)).map(_.version) :+ version
      val unfound = Option.when(hasIds && !named.exists(v => v == 1 || lacks(p, v, VersionFile.Snapshot).isEmpty))(
        s"the changelog of version $version names no snapshot that is there")
      val plan = RecoveryPlan.of(bins, p, version, owners(version), newest)
      val others = plan.bases.keys.flatMap(s => lacks(s.partition, s.version, VersionFile.Snapshot)) ++
        plan.stretches.keys.flatMap(s => (s.first to s.last).flatMap(lacks(s.partition, _, VersionFile.Changelog))) ++
        plan.stretches.keys.filter(s => hasFamilies && (s.partition != p || base.exists(s.first <= _)) && isUnnumbered(s))
          .map(s => s"the column families of partition ${s.partition} at version ${s.first} are not known")
      (own ++ others ++ unfound).headOption
    } catch {
      case e @ (_: NoSuchElementException | _: BinshiftException) => Some(s"there is no plan ($e)")
    }
  }

  /** True if no snapshot before the changelogs says which column families they have. */
  private def isUnnumbered(s: Stretch): Boolean = {
    val before = Iterator.iterate(s.first)(_ - 1).takeWhile(v => v > 0 && committed(v).contains(s.partition))
    // That of any attempt shows that the partition did not begin anew.
    val logged = there(s.partition).filter(_.kind == VersionFile.Changelog).map(_.version)
    val read = before.takeWhile(v => v == s.first || logged(v + 1))
    !read.exists(v => there(s.partition)(snapshotOf(s.partition, v)))
  }

  /** Checks the newest version, from which a file may have been taken away, and returns a finding that is wrong. */
  private def checkedWrongly: Option[String] = if (last == 0 || random.nextInt(5) > 0) None
  else {
    val table = owners(last).table(owners(last).at(last))
    val p = random.nextInt(table.partitions)
    def found = new RecoveryCheck(filesOfAll, last, hasFamilies).missing(p)
    def wanted = if (table.sizes(p) > 0) faultOf(p, last, table.binsOf(p).toSeq, isStrict = true) else None
    def wrong(what: String) =
      Option.when(found.isDefined != wanted.isDefined)(s"version $last of partition $p $what: $found, and not $wanted")
    val files = there.toSeq.flatMap { case (of, some) => some.toSeq.map(of -> _) }.filter(_._2.version > last - every)
    wrong("as it is").orElse(random.shuffle(files).headOption.flatMap { case (of, file) =>
      there(of) -= file
      try wrong(s"without ${file.name} of partition $of")
      finally there(of) += file
    })
  }

  /**
   * Checks partitions from which nothing is missing, while others go on between the listings with epochs, snapshots and cleanups.
   * Returns what is said to be missing.
   */
  private def overtakenLook: Option[String] = if (last == 0 || random.nextInt(10) > 0) None
  else {
    val partitions = owners(last).table(owners(last).at(last)).assignment.toSet
    def missing(files: RetainedVersions.Files)(version: Long, of: Set[Int]): Map[Int, String] = {
      val check = new RecoveryCheck(files, version, hasFamilies)
      of.toSeq.sorted.flatMap(p => triedOr(Option.empty[String])(check.missing(p)).map(p -> _)).toMap
    }
    val suspects = missing(new OvertakingFiles)(last, partitions)
    overtaken += suspects.size
    val confirmed = RecoveryCheck.confirmed(suspects, () => last, retain)(missing(filesOfAll))
    confirmed.flatMap(_.headOption).map(found => s"a look says that partition ${found._1} lacks ${found._2}")
  }

  /** After each listing, some epochs run, whose snapshots are uploaded at once, and all stores clean up. */
  private final class OvertakingFiles extends RetainedVersions.Files {
    override def hasIds: Boolean = filesOfAll.hasIds
    override def list(partition: Int): Seq[VersionFile] = {
      val listed = filesOfAll.list(partition)
      for (_ <- 0 until random.nextInt(3)) epoch(isCommitted = true, isUploaded = random.nextBoolean())
      cleanAll()
      listed
    }
    override def owners(version: Long): Owners = filesOfAll.owners(version)
    override def id(partition: Int, version: Long): String = filesOfAll.id(partition, version)
    override def lineage(partition: Int, version: Long, id: String): Seq[LineageItem] = filesOfAll.lineage(partition, version, id)
    override def absent(partition: Int, snapshot: VersionFile): Seq[String] = filesOfAll.absent(partition, snapshot)
  }

  private def keptTooLong: Option[String] = {
    val oldest = last - retain - 2L
    (for ((p, files) <- there; file <- files if file.version < oldest)
      yield s"partition $p still has ${file.name}, at version $last")
      .headOption
  }
}
