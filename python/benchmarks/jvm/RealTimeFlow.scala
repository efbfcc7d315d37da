package binshift.benchmarks

import java.{lang, util}
import java.util.concurrent.locks.LockSupport

import scala.collection.mutable.ArrayBuffer
import scala.jdk.CollectionConverters._

import org.apache.spark.sql.{DataFrame, ForeachWriter, Row, SparkSession}
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection
import org.apache.spark.sql.connector.catalog.{SupportsRead, Table, TableCapability, TableProvider}
import org.apache.spark.sql.connector.expressions.Transform
import org.apache.spark.sql.connector.read.{InputPartition, PartitionReader, PartitionReaderFactory, Scan, ScanBuilder}
import org.apache.spark.sql.connector.read.streaming._
import org.apache.spark.sql.connector.read.streaming.SupportsRealTimeRead.RecordStatus
import org.apache.spark.sql.functions.max
import org.apache.spark.sql.streaming.{StreamingQuery, Trigger}
import org.apache.spark.sql.types.{DataType, IntegerType, LongType, StructType}
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/**
 * A query in real-time mode, over a source whose records come at a rate that nothing slows down: what waits is counted from
 * when it was due. Driver, source and sink are in one JVM.
 *
 * First there is one record of each key, as fast as they are taken. After `flow`, the others come: of any of these keys where
 * they are counted, and of new keys where each key passes once.
 */
object RealTimeFlow {
  /** When the first record after those that fill the state is due, nanoseconds; none is before that is set. */
  @volatile private var begun = Long.MaxValue
  @volatile private var spacing = 1000000L
  private val outputs = ArrayBuffer.empty[(Long, Long)]
  private var filled = 0L

  def start(session: SparkSession, operator: String, keys: Int, checkpoint: String, batch: String): StreamingQuery = {
    begun = Long.MaxValue
    outputs.synchronized {
      outputs.clear()
      filled = 0
    }
    resume(session, operator, keys, checkpoint, batch)
  }

  /** Starts the query again, while records are due all the time. */
  def resume(session: SparkSession, operator: String, keys: Int, checkpoint: String, batch: String): StreamingQuery = {
    val isCount = operator == "count"
    val rows: DataFrame =
      session.readStream.format(classOf[FlowProvider].getName).option("keys", keys).option("new", !isCount).load()
    val results = if (isCount) rows.groupBy("key").agg(max("due").as("due")) else rows.dropDuplicates("key")
    results.writeStream.outputMode("update").foreach(new Outputs)
      .option("checkpointLocation", checkpoint).trigger(Trigger.RealTime(batch)).start()
  }

  /** Has records come from now on. */
  def flow(perSecond: Int): Unit = {
    spacing = 1000000000L / perSecond
    begun = System.nanoTime()
  }

  /** How many records that fill the state came out. */
  def filledSoFar(): Long = outputs.synchronized(filled)

  /** A line for each record that came out: when, and how long after it was due, in nanoseconds. */
  def lines(): String = outputs.synchronized(outputs.map { case (at, late) => s"$at $late" }.mkString("\n"))

  def now(): Long = System.nanoTime()

  private[benchmarks] def due(record: Long, keys: Int): Long =
    if (record < keys) 0L else if (begun == Long.MaxValue) Long.MaxValue else begun + (record - keys) * spacing

  /** The first record that is not due yet. */
  private[benchmarks] def dueByNow(keys: Int): Long =
    if (begun == Long.MaxValue) keys else keys + math.max(0L, System.nanoTime() - begun) / spacing

  private[benchmarks] def came(due: Long): Unit = {
    val at = System.nanoTime()
    outputs.synchronized(if (due == 0) filled += 1 else outputs += ((at, at - due)))
  }
}

private final class Outputs extends ForeachWriter[Row] {
  override def open(partitionId: Long, epochId: Long): Boolean = true
  override def process(row: Row): Unit = RealTimeFlow.came(row.getLong(1))
  override def close(error: Throwable): Unit = ()
}

final class FlowProvider extends TableProvider {
  override def inferSchema(options: CaseInsensitiveStringMap): StructType = StructType.fromDDL("key INT, due LONG")
  override def getTable(schema: StructType, partitioning: Array[Transform], options: util.Map[String, String]): Table =
    new FlowTable(schema)
}

private final class FlowTable(of: StructType) extends Table with SupportsRead {
  override def name: String = "flow"
  override def schema: StructType = of
  override def capabilities: util.Set[TableCapability] = Set(TableCapability.MICRO_BATCH_READ).asJava
  override def newScanBuilder(options: CaseInsensitiveStringMap): ScanBuilder = () =>
    new Scan {
      override def readSchema: StructType = of
      override def toMicroBatchStream(location: String): MicroBatchStream =
        new Flow(options.getInt("keys", 1000), options.getBoolean("new", false))
    }
}

private final case class Position(record: Long) extends Offset with PartitionOffset {
  override def json: String = record.toString
}

/** One reader, so that a state partition takes rows in the order in which they were due. */
private final class Flow(keys: Int, areNew: Boolean) extends MicroBatchStream with SupportsRealTimeMode {
  override def initialOffset(): Offset = Position(0)
  override def deserializeOffset(json: String): Offset = Position(json.toLong)
  /** In real-time mode Spark asks for it too, for the progress of the query; the batch takes what comes. */
  override def latestOffset(): Offset = Position(RealTimeFlow.dueByNow(keys))
  override def planInputPartitions(start: Offset, end: Offset): Array[InputPartition] =
    throw new UnsupportedOperationException("in real-time mode only")
  override def planInputPartitions(start: Offset): Array[InputPartition] =
    Array(FlowPart(start.asInstanceOf[Position].record))
  override def mergeOffsets(offsets: Array[PartitionOffset]): Offset = offsets.head.asInstanceOf[Position]
  override def createReaderFactory(): PartitionReaderFactory = FlowReaders(keys, areNew)
  override def commit(end: Offset): Unit = ()
  override def stop(): Unit = ()
}

private final case class FlowPart(from: Long) extends InputPartition

private final case class FlowReaders(keys: Int, areNew: Boolean) extends PartitionReaderFactory {
  override def createReader(partition: InputPartition): PartitionReader[InternalRow] =
    new FlowReader(partition.asInstanceOf[FlowPart].from, keys, areNew)
}

private final class FlowReader(from: Long, keys: Int, areNew: Boolean)
  extends PartitionReader[InternalRow] with SupportsRealTimeRead[InternalRow] {
  private var next_ = from
  private val toRow = UnsafeProjection.create(Array[DataType](IntegerType, LongType))
  private var row: InternalRow = _

  override def nextWithTimeout(startMs: lang.Long, timeoutMs: lang.Long): RecordStatus = {
    val end = System.nanoTime() + math.max(timeoutMs, 0L) * 1000000L
    var due = RealTimeFlow.due(next_, keys)
    while (due > System.nanoTime() && System.nanoTime() < end) {
      LockSupport.parkNanos(math.min(math.min(due, end) - System.nanoTime(), 1000000L))
      due = RealTimeFlow.due(next_, keys)
    }
    // As a source does that waits for a network: a query that is stopped reads no further.
    if (Thread.interrupted()) throw new InterruptedException("the task was killed")
    val isThere = due <= System.nanoTime()
    if (isThere) {
      val key = if (areNew || next_ < keys) next_.toInt else ((next_ * 2654435761L) % keys).toInt
      row = toRow(InternalRow(key, due))
      next_ += 1
    }
    RecordStatus.newStatusWithoutArrivalTime(isThere)
  }

  override def getOffset: PartitionOffset = Position(next_)
  override def next(): Boolean = throw new UnsupportedOperationException("in real-time mode only")
  override def get(): InternalRow = row
  override def close(): Unit = ()
}
