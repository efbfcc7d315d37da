package org.apache.spark.sql.binshift.stock

import java.util.UUID
import java.util.concurrent.CancellationException
import java.util.concurrent.atomic.AtomicReference

import scala.util.control.NonFatal

import org.apache.hadoop.fs.{Path, UnsupportedFileSystemException}
import org.json4s.JValue
import org.json4s.JsonDSL._
import org.json4s.jackson.JsonMethods.{compact, render}

import org.apache.spark.internal.Logging
import org.apache.spark.sql.binshift.internals.{QueryFailure, SparkInternals}
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.streaming.state.binshift.{BinshiftException, Faults}
import org.apache.spark.sql.execution.streaming.state.binshift.checkpoint.{CheckpointIds, Storage}
import org.apache.spark.sql.execution.streaming.state.binshift.conversion.{DistinctKeys, StoreForm}
import org.apache.spark.sql.execution.streaming.state.{HDFSBackedStateStoreProvider, RocksDBStateStoreProvider}
import org.apache.spark.util.LongAccumulator

/**
 * Writes the checkpoint of a stopped query to another directory, in the form of Spark's RocksDB provider, with the state of the
 * last committed epoch. The query can continue exactly from there. The original is only read.
 *
 * Spark's provider continues from that form, and so does binshift's, which takes the state over at its first epoch. A conversion
 * for binshift writes the same form, because only an operator's plan shows how its state should be stored.
 *
 * Used by Python, which calls `run` in one thread and `progress` in another.
 */
final class Conversion private[binshift] (session: SparkSession, options: ConversionOptions) extends Logging {
  import Conversion._

  private val source = new StoredCheckpoint(qualified(options.checkpoint), session)
  private val output = qualified(options.output)
  private val partitions = options.partitions.getOrElse(source.partitions)
  private val target = new CheckpointCopy(source, output, Stock, partitions, session)
  private val done = new AtomicReference[Option[LongAccumulator]](None)

  /** False if a query with binshift's provider can continue from the checkpoint as it is. */
  private val isNeeded = options.to == "rocksdb" || source.provider != Stock || partitions != source.partitions

  /** Checked between two stores, when there is no job that could be cancelled. */
  @volatile private var isCancelled = false

  private val group = s"binshift-conversion-${UUID.randomUUID()}"

  check()

  /** Describes what will be converted, as JSON. */
  def plan(): String = json(
    ("checkpoint" -> source.root.toString) ~ ("output" -> output.toString) ~ ("to" -> options.to) ~
      ("needed" -> isNeeded) ~ ("provider" -> source.provider) ~ ("epoch" -> source.epoch) ~
      ("uncommitted_epochs" -> source.offsets.count(_._1 > source.epoch)) ~
      ("partitions_before" -> source.partitions) ~ ("partitions" -> partitions) ~
      ("stores" -> source.stores.map { s =>
        ("operator_id" -> s.operatorId) ~ ("operator" -> s.operator) ~ ("store" -> s.storeName) ~
          ("moved" -> isMoved(s))
      }))

  /** How many partitions of all stores were written, out of how many, as JSON. */
  def progress(): String = {
    val total = source.stores.map(s => if (s.isSingle) 1L else partitions.toLong).sum
    json(("done" -> done.get.map(_.sum).getOrElse(0L)) ~ ("total" -> total))
  }

  /** Blocks until the conversion is done. */
  def run(): Unit = {
    val context = session.sparkContext
    context.setJobGroup(group, s"binshift: converting ${source.root}", interruptOnCancel = true)
    try convert()
    catch {
      case NonFatal(e) => throw QueryFailure.of(e).getOrElse(
          BinshiftException("CONVERSION_FAILED", "checkpoint" -> source.root).failure(
            s"${source.root} could not be converted (${firstLine(e)}); it is unchanged, and what is in $output " +
              "is of no use; convert again", e))
    } finally context.clearJobGroup()
  }

  /** Makes `run` fail soon. */
  def cancel(): Unit = {
    isCancelled = true
    session.sparkContext.cancelJobGroupAndFutureJobs(group)
  }

  private def convert(): Unit = {
    val written = session.sparkContext.longAccumulator("binshift: partitions converted")
    done.set(Some(written))
    target.begin()
    val rewrite = new StateRewrite(
      session, source, target, source.conf(source.provider), source.conf(Stock), partitions, written)
    val ids = source.stores.sortBy(s => CheckpointIds.position(s.storeName)).map { s =>
      Faults.at("convert.store")
      requireWanted()
      val keys = Option.when(isMoved(s) && mayBeElsewhere(s))(DistinctKeys.in(session.sparkContext, source.partitions))
      val written = rewrite.run(s, isMoved(s), keys)
      keys.foreach(requireProof(s, _))
      s -> written
    }
    Faults.at("convert.finish")
    Faults.at(s"convert.finish.$partitions")
    requireWanted()
    if (!options.force) requireStopped()
    target.finish(Option.when(source.commit.stateUniqueIds.isDefined)(byOperator(ids)))
    logInfo(s"${source.root} as of epoch ${source.epoch} was written to $output")
  }

  /** Refuses a query that runs. We can't ask other processes, but if the query runs, its epochs advance. */
  private def requireStopped(): Unit = source.goneOnTo.foreach { epoch =>
    throw runs(s"it has gone on to epoch $epoch while epoch ${source.epoch} was converted")
  }

  private def runs(how: String): BinshiftException =
    BinshiftException("QUERY_RUNS", "checkpoint" -> source.root).configuration(
      s"the query of ${source.root} runs: $how; stop it first, because two queries would continue from the same state " +
        "(force the conversion if you want that)")

  private def requireWanted(): Unit = if (isCancelled) throw new CancellationException("it was cancelled")

  private def byOperator(ids: Seq[(StoreForm, Array[Option[String]])]): Map[Long, Array[Array[String]]] =
    ids.groupMap(_._1.operatorId)(_._2).view.mapValues { stores =>
      Array.tabulate(stores.head.length)(p => stores.map(_(p).get).toArray)
    }.toMap

  /** True if keys may change their partition. */
  private def isMoved(store: StoreForm): Boolean =
    !store.isSingle && (partitions != source.partitions || storageOf(store).contains(Storage.Binned))

  private def storageOf(store: StoreForm): Option[Storage] =
    source.layout.flatMap(_.operators.get(store.operatorId)).map(_.storage)

  private def check(): Unit = {
    if (!Targets(options.to)) throw BinshiftException("INVALID_VALUE", "name" -> "to", "value" -> options.to).configuration(
      s"'${options.to}' is no form of a checkpoint; give one of ${Targets.toSeq.sorted.mkString(", ")}")
    if (partitions < 1)
      throw BinshiftException("INVALID_VALUE", "name" -> "partitions", "value" -> partitions).configuration(
        s"$partitions partitions are impossible; give 1 or more")
    val isBinshift = SparkInternals.isBinshiftProvider(source.provider)
    if (!isBinshift && source.provider != Stock && source.provider != HdfsBacked) {
      throw BinshiftException("PROVIDER_NOT_CONVERTIBLE", "provider" -> source.provider).configuration(
        s"${source.root} was written by provider ${source.provider}; the providers that can be converted are " +
          s"binshift's, $Stock and $HdfsBacked")
    }
    if (isBinshift && options.to == "binshift")
      throw BinshiftException("NOTHING_TO_CONVERT", "checkpoint" -> source.root).configuration(
        s"${source.root} is a checkpoint of binshift already; to change its partitions, rescale the query while it runs")
    if (source.stores.isEmpty) throw BinshiftException("NOTHING_TO_CONVERT", "checkpoint" -> source.root).configuration(
      s"${source.root} has no stateful operators that are described in its metadata; start the query on it as it is")
    source.changedKeys.headOption.filterNot(_ => source.isTableOfSpark).foreach(c =>
      throw c.refusal(
        "the query was rescaled before, and Spark's provider would look for it elsewhere; go on with binshift, or " +
          "start anew with a new checkpoint"))
    source.stores.find(s => storageOf(s).contains(Storage.Plain) && partitions != source.partitions).foreach { s =>
      throw BinshiftException.unsupportedOperator(
        s"operator ${s.operator} cannot change its ${source.partitions} partitions, since the keys of its state may " +
          "differ from the columns by which Spark distributes its rows; leave out --partitions")
    }
    if (partitions != source.partitions) requirePlacementIsKnown()
    if (options.to == "binshift" && !source.isPlacedByKey)
      throw BinshiftException("CHECKPOINT_TOO_OLD", "checkpoint" -> source.root).configuration(
        s"binshift cannot continue from ${source.root}, converted or not: ${TakeoverEpochs.reasonNotPlacedByKey}; stay with " +
          "Spark's provider, or start the query with a new checkpoint")
    if (!options.force) Option(session.sharedState.activeStreamingQueries.get(UUID.fromString(source.id))).foreach { q =>
      throw runs(s"this application has it as ${q.id}")
    }
    if (s"$output/".startsWith(s"${source.root}/"))
      throw BinshiftException("INVALID_VALUE", "name" -> "output", "value" -> output).configuration(
        s"the output $output is in the checkpoint itself; name a directory elsewhere")
    target.requireFree()
  }

  /** True if keys may be in other partitions than their hash says. Only the keys themselves can show that. */
  private def mayBeElsewhere(store: StoreForm): Boolean =
    source.layout.isEmpty && !store.isSingle && (store.mayBePlain || !source.isPlacedByKey)

  /** Refuses stores whose keys can't show it. With a single partition, for example, every key is where its hash puts it. */
  private def requirePlacementIsKnown(): Unit = source.stores.find(mayBeElsewhere).foreach { s =>
    if (source.partitions == 1) throw placementUnknown(s, "all its state in 1 partition, which does not tell")
    if (s.singleKeysMayDiffer)
      throw placementUnknown(s, "keys of timestamps or floats, some of which Python may have changed, so that they do not tell")
  }

  private def requireProof(store: StoreForm, keys: DistinctKeys): Unit =
    if (keys.count > 0 && keys.count < keys.needed) throw placementUnknown(store,
      s"${keys.count} keys in ${source.partitions} partitions, and it takes ${keys.needed} to tell")

  private def placementUnknown(store: StoreForm, what: String): BinshiftException = {
    val orElse = if (source.isPlacedByKey) ", or start the query in a session of binshift and rescale it there" else ""
    BinshiftException.unsupportedOperator(s"operator ${store.operator} has $what whether Spark distributes its rows by the " +
      s"keys of its state; leave out --partitions$orElse")
  }

  private def qualified(location: String): Path = {
    val conf = session.sessionState.newHadoopConf()
    val path = hadoopPath(location, Option(conf.get("fs.s3.impl")).isDefined)
    try path.getFileSystem(conf).makeQualified(path)
    catch {
      case NonFatal(e) if isMissing(e) =>
        throw BinshiftException("FILE_SYSTEM_UNKNOWN").configuration(
          s"this Spark has no file system for '${path.toUri.getScheme}:' (${e.getMessage}); give its classes with " +
            "--packages or --jars, and its settings with --conf; from Python, with conf= or in the session")
    }
  }

  private def json(value: JValue): String = compact(render(value))
}

private[binshift] object Conversion {
  /** Looks at the checkpoint and at the output, and refuses what cannot be converted; changes nothing. */
  def of(session: SparkSession, options: ConversionOptions): Conversion =
    try new Conversion(session, options)
    catch {
      case NonFatal(e) => throw QueryFailure.of(e).getOrElse(
          BinshiftException("CONVERSION_FAILED", "checkpoint" -> options.checkpoint).failure(
            s"${options.checkpoint} or ${options.output} cannot be read (${firstLine(e)}); look at the checkpoint with " +
              "'binshift doctor' and 'binshift fsck'", e))
    }

  /** The message without the stack trace that Spark's messages contain. */
  private def firstLine(e: Throwable): String = Option(e.getMessage).flatMap(_.linesIterator.nextOption()).getOrElse(e.toString)

  /** Hadoop's name for S3 is s3a; other tools, and binshift's commands, know it as s3. */
  private[binshift] def hadoopPath(location: String, isS3Known: Boolean): Path =
    new Path(if (isS3Known) location else location.replaceFirst("^s3n?://", "s3a://"))

  private def isMissing(e: Throwable): Boolean = Iterator.iterate(e)(_.getCause).takeWhile(_ != null).exists {
    case _: UnsupportedFileSystemException | _: ClassNotFoundException => true
    case _ => false
  }

  private val Targets = Set("binshift", "rocksdb")
  private val Stock = classOf[RocksDBStateStoreProvider].getName
  private val HdfsBacked = classOf[HDFSBackedStateStoreProvider].getName
}

/**
 * @param to         `rocksdb` or `binshift`
 * @param partitions of the result; by default as many as the checkpoint has
 * @param force      whether to convert even if the query may be running, with what it has committed so far
 */
private[binshift] final case class ConversionOptions(
    checkpoint: String, output: String, to: String, partitions: Option[Int], force: Boolean = false)
