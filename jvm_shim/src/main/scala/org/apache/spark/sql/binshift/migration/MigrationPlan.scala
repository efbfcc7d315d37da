package org.apache.spark.sql.binshift.migration

import scala.collection.immutable.ArraySeq

import org.json4s.{DefaultFormats, Formats, JField, JObject, JString, JValue}
import org.json4s.JsonDSL._
import org.json4s.jackson.JsonMethods.parse

import org.apache.spark.sql.execution.streaming.state.binshift.{BinshiftException, Trace}
import org.apache.spark.sql.execution.streaming.state.binshift.checkpoint.{ChangedKeys, ControlDir}
import org.apache.spark.sql.execution.streaming.state.binshift.routing.{Move, RoutingTable}

/**
 * An ordered list of steps that leads from one routing table to another. Python's planner makes it, or the one in `planning`; here it is
 * only checked and applied.
 *
 * @param source     table that the plan starts from
 * @param strategy   name of the strategy that cut the plan; only for people
 * @param gap        epochs that stay idle between two steps
 * @param isOnDemand whether each bin is fetched when it is first touched, after its step
 */
private[binshift] final case class MigrationPlan(
    source: RoutingTable, steps: IndexedSeq[Step], strategy: String, gap: Int, isOnDemand: Boolean) {

  /** Throws `IllegalArgumentException` if a step doesn't fit the table that the steps before it lead to. */
  def requireFitting(): Unit = {
    val owners = source.assignment.toArray
    val sizes = new Array[Int]((source.partitions +: steps.map(_.partitions)).max)
    owners.foreach(sizes(_) += 1)
    steps.zipWithIndex.foreach { case (step, i) =>
      step.moves.foreach { m =>
        require(m.bin >= 0 && m.bin < owners.length, s"step ${i + 1}: bin ${m.bin} does not exist")
        require(owners(m.bin) == m.source,
          s"step ${i + 1}: bin ${m.bin} belongs to partition ${owners(m.bin)}, not to ${m.source}")
        require(m.target >= 0 && m.target < step.partitions,
          s"step ${i + 1}: partition ${m.target} is not one of ${step.partitions}")
        sizes(m.source) -= 1
        sizes(m.target) += 1
        owners(m.bin) = m.target
      }
      require(step.partitions >= 1 && (step.partitions until sizes.length).forall(sizes(_) == 0),
        s"step ${i + 1} leaves bins in partitions beyond its ${step.partitions}")
    }
  }

  /**
   * The table after step `index` is taken from `now`; `None` if the step doesn't fit, for example because the checkpoint was wound back
   * behind the plan's start. Partitions may have been opened before the step.
   */
  def tableAfter(index: Int, now: RoutingTable): Option[RoutingTable] = {
    val step = steps(index)
    val isPlanned = index > 0 || now.assignment == source.assignment && now.partitions >= source.partitions
    if (!isPlanned) None
    else
      try Some(now.moved(step.moves, step.partitions))
      catch { case _: IllegalArgumentException => None }
  }

  /** The table after the last step. */
  def target: RoutingTable =
    source.moved(steps.flatMap(_.moves), steps.lastOption.fold(source.partitions)(_.partitions))

  /** @param epoch since when the source has been in force */
  def toJson(epoch: Long): JObject = ("format" -> MigrationPlan.FormatVersion) ~
    ("source" -> (("partitions" -> source.partitions) ~ ("assignment" -> source.assignment.toSeq) ~ ("epoch" -> epoch))) ~
    ("steps" -> steps.map { s =>
      ("partitions" -> s.partitions) ~ ("moves" -> s.moves.map(m => Seq(m.bin, m.source, m.target)))
    }) ~ ("strategy" -> strategy) ~ ("gap" -> gap) ~ ("on_demand" -> isOnDemand)
}

/** @param partitions number of state partitions from the step's epoch on */
private[binshift] final case class Step(partitions: Int, moves: Seq[Move])

private[binshift] object MigrationPlan {
  private val FormatVersion = 1

  def fromJson(json: JValue): MigrationPlan = {
    implicit val formats: Formats = DefaultFormats
    val format = (json \ "format").extract[Int]
    if (format != FormatVersion) {
      throw BinshiftException("UNKNOWN_FORMAT", "format" -> format).plan(
        s"the plan has format $format; this binshift reads format $FormatVersion; plan again")
    }
    MigrationPlan(
      RoutingTable(
        (json \ "source" \ "partitions").extract[Int],
        ArraySeq.unsafeWrapArray((json \ "source" \ "assignment").extract[Array[Int]])),
      (json \ "steps").children.map { s =>
        val partitions = (s \ "partitions").extract[Int]
        require(partitions >= 1 && partitions <= RoutingTable.MaxPartitions, s"a step has $partitions partitions")
        Step(partitions,
          (s \ "moves").children.map { m =>
            val numbers = m.extract[Array[Int]]
            Move(numbers(0), numbers(1), numbers(2))
          })
      }.toIndexedSeq,
      (json \ "strategy").extract[String],
      (json \ "gap").extract[Int],
      (json \ "on_demand").extract[Boolean])
  }
}

/**
 * A submitted plan on its way through a query; the content of `plans/<id>.json`.
 *
 * It doesn't record which of its steps have been taken. Only the routing log says that.
 *
 * @param json        the plan as it was submitted
 * @param options     how it is carried out
 * @param cancelled   no further step is scheduled
 * @param stopped     why, unless a client has cancelled it
 * @param from        of a rollback: the name of the entry with which it begins. Under another one it must not, even with the same table.
 * @param application the application that it was submitted to, whose executors the options name
 * @param file        the file in which it is kept. No other migration ever has this file, so deleting it can't hit another one.
 */
private[binshift] final case class PlannedMigration(
    id: String, plan: MigrationPlan, json: JValue, options: MigrationOptions, cancelled: Boolean,
    application: Option[String], file: String, stopped: Option[Stopped] = None,
    from: Option[String] = None) {

  /** True if the steps that it has taken are undone once the last of them is over. */
  def rollsBack: Boolean = stopped.exists(_.rollsBack)

  /** True if there is nothing to do. */
  def isIdle: Boolean = plan.steps.isEmpty && !options.movesPartitions

  /**
   * The moves of step `index` and of following steps that can be copied at the same time. They end before the first step that moves a bin
   * again, because the bin will be elsewhere by then, or that needs partitions that are not open.
   */
  def copiedTogether(index: Int, partitions: Int): IndexedSeq[Seq[Move]] = {
    val moved = scala.collection.mutable.Set.empty[Int]
    plan.steps.drop(index)
      .takeWhile(s => s.moves.forall(m => m.target < partitions && moved.add(m.bin))).map(_.moves)
  }
}

/**
 * @param startEpoch no step takes effect before this epoch
 * @param isPrepared whether bins are copied before their step takes effect
 * @param placeOn    executors on which new partitions are placed, and those that leave `vacate`; none means all
 * @param vacate     executor that all partitions leave
 * @param places     the new executors of partitions that should move
 * @param application the application of these executors; `None` if unknown
 * @param deadline   when its last step has to be taken
 * @param guard      how long epochs may take meanwhile
 */
private[binshift] final case class MigrationOptions(
    startEpoch: Option[Long] = None, isPrepared: Boolean, placeOn: Seq[String] = Nil, vacate: Option[String] = None,
    places: Map[Int, String] = Map.empty, application: Option[String] = None, deadline: Option[Deadline] = None,
    guard: Option[EpochGuard] = None) {

  /** True if whole partitions move to other executors. */
  def movesPartitions: Boolean = vacate.nonEmpty || places.nonEmpty

  def toJson: JValue = ("start_epoch" -> startEpoch) ~ ("prepare" -> isPrepared) ~
    ("place_on" -> placeOn) ~ ("vacate" -> vacate) ~ ("application" -> application) ~
    ("deadline" -> deadline.map(_.toJson)) ~ ("on_timeout" -> deadline.map(_.onTimeout)) ~ ("guard" -> guard.map(_.toJson)) ~
    ("places" -> JObject(places.toList.sortBy(_._1).map { case (p, executor) => JField(p.toString, JString(executor)) }))
}

private[binshift] object MigrationOptions {
  def fromJson(json: JValue): MigrationOptions = {
    implicit val formats: Formats = DefaultFormats
    MigrationOptions((json \ "start_epoch").extractOpt[Long], (json \ "prepare").extract[Boolean],
      (json \ "place_on").extract[Seq[String]], (json \ "vacate").extractOpt[String],
      (json \ "places").extractOpt[Map[String, String]].getOrElse(Map.empty).map { case (p, e) => p.toInt -> e },
      (json \ "application").extractOpt[String], Deadline.fromJson(json), EpochGuard.fromJson(json))
  }
}

private[binshift] object PlannedMigration {
  private val Dir = "plans"
  /** The file in which earlier versions kept the migration under way. It stays there until it ends; new ones get their own files. */
  private val OldFile = "plan.json"
  private val FormatVersion = 1

  def create(id: String, planJson: String, optionsJson: String, application: String): PlannedMigration = {
    val json = parse(planJson)
    PlannedMigration(id, MigrationPlan.fromJson(json), json, MigrationOptions.fromJson(parse(optionsJson)),
      cancelled = false, Some(application), fileOf(id))
  }

  /** True if a migration is under way and can continue, which it can't if keys change. */
  def isUnderWay(dir: ControlDir, id: String): Boolean = read(dir).exists(_.id == id) && ChangedKeys.read(dir).isEmpty

  /** The accepted migrations, in the order of their execution. There are several only if each of two drivers has accepted one. */
  def read(dir: ControlDir): Seq[PlannedMigration] =
    (OldFile +: dir.jsonFiles(Dir).sorted.map(fileOf)).flatMap(read(dir, _))

  private[migration] def fileOf(id: String): String = s"$Dir/$id.json"

  private def read(dir: ControlDir, file: String): Option[PlannedMigration] = dir.decoded(file) { json =>
    implicit val formats: Formats = DefaultFormats
    ControlDir.requireFormat(json, file, FormatVersion, advice = s", or delete $file to abandon the migration")
    PlannedMigration((json \ "id").extract[String], MigrationPlan.fromJson(json \ "plan"), json \ "plan",
      MigrationOptions.fromJson(json \ "options"), (json \ "cancelled").extract[Boolean],
      (json \ "application").extractOpt[String], file, Stopped.fromJson(json \ "stopped"), (json \ "from").extractOpt[String])
  }

  def write(dir: ControlDir, m: PlannedMigration): Unit = {
    if (Trace.isOn) Trace("plan", dir.checkpoint, "migration" -> m.id, "file" -> m.file, "cancelled" -> m.cancelled)
    dir.write(m.file,
      ("format" -> FormatVersion) ~ ("id" -> m.id) ~ ("options" -> m.options.toJson) ~
        ("cancelled" -> m.cancelled) ~ ("stopped" -> m.stopped.map(_.toJson)) ~ ("from" -> m.from) ~
        ("application" -> m.application) ~ ("plan" -> m.json))
  }

  def delete(dir: ControlDir, m: PlannedMigration): Unit = {
    if (Trace.isOn) Trace("plan forgotten", dir.checkpoint, "migration" -> m.id, "file" -> m.file)
    dir.delete(m.file)
  }
}
