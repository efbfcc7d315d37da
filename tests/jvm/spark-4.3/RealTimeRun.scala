package org.apache.spark.sql.binshift

import java.nio.file.{Files, Path, Paths}
import java.nio.file.StandardOpenOption.{APPEND, CREATE}
import java.util.concurrent.{ConcurrentHashMap, CountDownLatch}
import java.util.concurrent.atomic.AtomicLong

import org.apache.spark.sql.{DataFrame, Encoders, ForeachWriter, Row}
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.connector.read.InputPartition
import org.apache.spark.sql.connector.read.streaming.Offset
import org.apache.spark.sql.execution.datasources.v2.LowLatencyClock
import org.apache.spark.sql.execution.streaming.RealTimeTrigger
import org.apache.spark.sql.execution.streaming.runtime.{MicroBatchExecution, RealTimeModeAllowlist, StreamingQueryWrapper}
import org.apache.spark.sql.execution.streaming.sources.LowLatencyMemoryStream
import org.apache.spark.sql.execution.streaming.state.StateStore
import org.apache.spark.sql.functions.{count, sum}
import org.apache.spark.sql.streaming._
import org.apache.spark.util.{Clock, SystemClock}

/**
 * A query in real-time mode over Spark's in-memory source of that mode, with one reader, so that the rows of a key keep
 * their order. A batch ends when it is told to, because the clock of the mode stands still until then; or by the clock, where
 * tasks have JVMs of their own.
 *
 * @param outputs a directory, which gets a file for each epoch, partition and run, with a line for each row
 * @param run     number of the run: what it writes of an epoch takes the place of what runs before it have written
 */
final class RealTimeRun(
    spark: SparkSession, operator: String, checkpoint: String, outputs: String, run: Int, isStanding: Boolean) {
  private val clock: Clock = if (isStanding) new StandingClock else new SystemClock
  LowLatencyClock.setClock(clock)
  @volatile private var occupant: Thread = _
  private val inputs = Seq.tabulate(2) { i =>
    new PlannedStream(i, spark, clock)
  }

  def add(lines: String): Unit =
    inputs.head.addData(lines.linesIterator.map(_.split(' ')).map(r => (r(0), r(1).toLong)).toSeq)

  /** Columns k and v of one of two streams. */
  def rows(stream: Int): DataFrame = inputs(stream).toDF().toDF("k", "v")

  def start(): StreamingQuery = startWith(RealTimeTrigger(RealTimeRun.BatchMs))

  /** The same query, in micro-batches. */
  def startBatches(): StreamingQuery = startWith(Trigger.ProcessingTime(0))

  private def startWith(trigger: Trigger): StreamingQuery =
    RealTimeRun.build(operator, rows(0), rows(1)).writeStream.outputMode("update")
      .foreach(new Lines(outputs, run)).option("checkpointLocation", checkpoint).trigger(trigger).start()

  /** Ends the batch that is open. */
  def endBatch(): Unit = StandingClock.now.addAndGet(RealTimeRun.BatchMs)

  /** Has another job take slots until `free`; returns once so many of its tasks run. The others wait, and count as well. */
  def occupy(tasks: Int, running: Int): Unit = {
    val begun = RealTimeRun.begin(running)
    occupant = new Thread(() => spark.sparkContext.parallelize(0 until tasks, tasks).foreach(_ => RealTimeRun.hold()))
    occupant.start()
    begun.await()
  }

  /** The same, in the midst of the next planning of a batch: after its table was decided, and before its job is submitted. */
  def occupyWhilePlanned(tasks: Int): Unit = RealTimeRun.addWhilePlanned(() => occupy(tasks, tasks))

  /** Closes all stores then, so that the batch has them come back from the checkpoint. */
  def unloadWhilePlanned(): Unit = RealTimeRun.addWhilePlanned(() => StateStore.unloadAll())

  /** Returns once that job is over. */
  def free(): Unit = {
    RealTimeRun.end()
    occupant.join()
  }
}

object RealTimeRun {
  private val BatchMs = 5000L
  @volatile private var begun = new CountDownLatch(0)
  @volatile private var ended = new CountDownLatch(0)
  @volatile private var whilePlanned: () => Unit = () => ()

  /** Has an action run in the midst of the next planning of a batch, after those that were added before. */
  private def addWhilePlanned(action: () => Unit): Unit = {
    val earlier = whilePlanned
    whilePlanned = () => {
      earlier()
      action()
    }
  }

  /** The action of a test, which is done once. */
  def planned(): Unit = {
    val action = whilePlanned
    whilePlanned = () => ()
    action()
  }

  def begin(slots: Int): CountDownLatch = {
    begun = new CountDownLatch(slots)
    ended = new CountDownLatch(1)
    begun
  }

  def hold(): Unit = {
    begun.countDown()
    ended.await()
  }

  def end(): Unit = ended.countDown()

  /** From k and v to columns of which each row, as text, is one that the test can foretell. */
  def build(operator: String, rows: DataFrame, others: => DataFrame): DataFrame = {
    val spark = rows.sparkSession
    import spark.implicits._
    operator match {
      case "count" => rows.groupBy("k").agg(count("*"), sum("v"))
      case "distinct" => rows.dropDuplicates("k").select("k")
      case "transform" =>
        rows.as[(String, Long)].groupByKey(_._1).transformWithState(new Totals, TimeMode.None(), OutputMode.Update()).toDF()
      case "transform-more" =>
        rows.as[(String, Long)].groupByKey(_._1).transformWithState(new MoreTotals, TimeMode.None(), OutputMode.Update()).toDF()
      case "broken-text" =>
        // Java makes other characters of what is not UTF-8.
        rows.selectExpr("if(v % 2 = 0, cast(unhex(hex(160 + v)) as string), k) as k", "v").groupBy("k").as[String, (String, Long)]
          .transformWithState(new Totals, TimeMode.None(), OutputMode.Update()).toDF()
      case "repartitioned" => rows.repartition(2).groupBy("k").agg(count("*"), sum("v"))
      case "repartitioned-by-key" => rows.repartition(2, $"k").groupBy("k").agg(count("*"), sum("v"))
      case "repartitioned-by-column" => rows.repartition($"v").groupBy("k").agg(count("*"), sum("v"))
      case "repartitioned-counts" => rows.groupBy("k").agg(count("*"), sum("v")).repartition(2, $"k")
      case "united-repartitioned" =>
        rows.repartition(2, $"k").union(others.repartition(2, $"k")).groupBy("k").agg(count("*"), sum("v"))
      case "distinct-count" => rows.dropDuplicates("k", "v").groupBy("k").agg(count("*"), sum("v"))
    }
  }

  /** Settings with which the query has had its last epoch planned. */
  def setting(query: StreamingQuery, key: String): String = query match {
    case w: StreamingQueryWrapper =>
      w.streamingQuery.asInstanceOf[MicroBatchExecution].sparkSessionForStream.conf.getOption(key).orNull
  }

  def plan(query: StreamingQuery): String = query match {
    case w: StreamingQueryWrapper => w.streamingQuery.lastExecution.executedPlan.toString
  }

  /** Returns the result of Spark's check of operators by name, for the plan of a query. */
  def refusedBySpark(query: StreamingQuery): String = query match {
    case w: StreamingQueryWrapper =>
      try {
        RealTimeModeAllowlist.checkAllowedPhysicalOperator(w.streamingQuery.lastExecution.executedPlan, throwException = true)
        ""
      } catch {
        case e: IllegalArgumentException => e.getMessage
      }
  }

  def failure(query: StreamingQuery): String = query.exception.map(org.apache.spark.util.Utils.exceptionString(_)).getOrElse("")

  /** Tasks that a query runs at once; -1 as long as some of them have not begun. */
  def tasksAtOnce(query: StreamingQuery): Int = query match {
    case w: StreamingQueryWrapper =>
      val tracker = w.streamingQuery.sparkSession.sparkContext.statusTracker
      val stages = tracker.getJobIdsForGroup(query.runId.toString).flatMap(tracker.getJobInfo(_))
        .filter(_.status.name == "RUNNING").flatMap(_.stageIds()).map(tracker.getStageInfo(_))
      if (stages.nonEmpty && stages.forall(_.exists(s => s.numActiveTasks == s.numTasks))) stages.flatten.map(_.numTasks).sum
      else -1
  }

  /** True if tasks of an epoch are under way, so that it is known when its batch ends. */
  def isRunning(query: StreamingQuery, epoch: Long): Boolean = query match {
    case w: StreamingQueryWrapper =>
      val tracker = w.streamingQuery.sparkSession.sparkContext.statusTracker
      Option(w.streamingQuery.lastExecution).exists(_.currentBatchId == epoch) &&
      tracker.getJobIdsForGroup(query.runId.toString).flatMap(tracker.getJobInfo(_)).filter(_.status.name == "RUNNING")
        .flatMap(_.stageIds()).flatMap(tracker.getStageInfo(_)).exists(_.numActiveTasks > 0)
  }
}

/** Spark's in-memory source, which a test hears from while a batch is planned. */
final class PlannedStream(id: Int, spark: SparkSession, clock: Clock)
  extends LowLatencyMemoryStream[(String, Long)](id, spark, 1, clock)(Encoders.tuple(Encoders.STRING, Encoders.scalaLong)) {

  override def planInputPartitions(start: Offset): Array[InputPartition] = {
    RealTimeRun.planned()
    super.planInputPartitions(start)
  }
}

/** A clock for all readers in this JVM. */
final class StandingClock extends Clock with Serializable {
  override def getTimeMillis(): Long = StandingClock.now.get
  override def nanoTime(): Long = StandingClock.now.get * 1000000
  override def waitTillTime(targetTime: Long): Long = getTimeMillis()
}

object StandingClock {
  val now = new AtomicLong(1)
}

final class Lines(folder: String, run: Int) extends ForeachWriter[Row] {
  @transient private var file: Path = _

  override def open(partitionId: Long, epochId: Long): Boolean = {
    file = Paths.get(folder, s"$epochId.$run.$partitionId")
    Files.deleteIfExists(file)
    true
  }

  override def process(row: Row): Unit = Files.writeString(file, row.mkString(" ") + "\n", CREATE, APPEND)
  override def close(error: Throwable): Unit = ()
}

/** Counts and sums the values of a key. */
class Totals extends StatefulProcessor[String, (String, Long), (String, Long, Long)] {
  @transient private var total: ValueState[Long] = _
  @transient private var values: MapState[Long, Long] = _

  override def init(outputMode: OutputMode, timeMode: TimeMode): Unit = {
    total = getHandle.getValueState[Long]("total", Encoders.scalaLong, TTLConfig.NONE)
    values = getHandle.getMapState[Long, Long]("values", Encoders.scalaLong, Encoders.scalaLong, TTLConfig.NONE)
  }

  override def handleInputRows(
      key: String, rows: Iterator[(String, Long)], timers: TimerValues): Iterator[(String, Long, Long)] =
    rows.map { case (_, v) =>
      values.updateValue(v, (if (values.containsKey(v)) values.getValue(v) else 0L) + 1)
      total.update((if (total.exists()) total.get() else 0L) + v)
      (key, values.values().sum, total.get())
    }
}

/** The processor in a later version of a query, with one more state variable. */
final class MoreTotals extends Totals {
  @transient private var count: ValueState[Long] = _

  override def init(outputMode: OutputMode, timeMode: TimeMode): Unit = {
    super.init(outputMode, timeMode)
    count = getHandle.getValueState[Long]("count", Encoders.scalaLong, TTLConfig.NONE)
  }

  override def handleInputRows(
      key: String, rows: Iterator[(String, Long)], timers: TimerValues): Iterator[(String, Long, Long)] =
    super.handleInputRows(key, rows, timers).map { row =>
      count.update((if (count.exists()) count.get() else 0L) + 1)
      row
    }
}
