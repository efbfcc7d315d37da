package org.apache.spark.sql.binshift.ui

import java.util.concurrent.{TimeoutException, TimeUnit}
import java.util.concurrent.atomic.{AtomicBoolean, AtomicLong}

import com.codahale.metrics.{CachedGauge, Gauge, MetricRegistry}

import org.apache.spark.metrics.source.Source
import org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution
import org.apache.spark.util.ThreadUtils

/**
 * The metrics of one run of a query in Spark's metrics system, under `binshift.<query's name or id>`. Any
 * thread may read them; they look at the query once a second at most.
 */
private[binshift] final class QueryMetrics(query: MicroBatchExecution, val sourceName: String) extends Source {
  override val metricRegistry = new MetricRegistry

  private val binsAdopted = new AtomicLong
  private val bytesAdopted = new AtomicLong
  @volatile private var last = QueryView.Unknown
  private val isLooking = new AtomicBoolean
  private val view = new CachedGauge[QueryView](1, TimeUnit.SECONDS) {
    override protected def loadValue(): QueryView = look()
  }

  gauge("bins")(_.entry.map(_.table.bins).getOrElse(0))
  gauge("partitions")(_.entry.map(_.table.partitions).getOrElse(0))
  gauge("skew")(_.skew)
  gauge("migration.running")(_.migration.size)
  gauge("migration.stepsDone")(_.migration.map(_.done).getOrElse(0))
  gauge("migration.stepsTotal")(_.migration.map(_.total).getOrElse(0))
  gauge("migration.binsAwaited")(_.migration.map(_.awaited).getOrElse(0L))
  gauge("partitionsMisplaced")(_.misplaced)
  gauge("partitionsEvacuated")(_.evacuated)
  gauge("standbysReady")(_.standbysReady)
  gauge("standbyLag")(_.standbyLag)
  gauge("partitionsTakenOver")(_.takenOver)
  gauge("binsAudited")(_.audit.fold(0)(_.equal))
  gauge("binsDiffering")(_.audit.fold(0)(_.differing))
  gauge("binsAdopted")(_ => binsAdopted.get)
  gauge("bytesAdopted")(_ => bytesAdopted.get)

  /** Adds what an epoch's switch moved, over all operators. */
  def adopted(bins: Long, bytes: Long): Unit = {
    binsAdopted.addAndGet(bins)
    bytesAdopted.addAndGet(bytes)
  }

  /**
   * One thread asks for the metrics of all queries. What a query has to say may wait for its checkpoint: then it is as it was last.
   */
  private def look(): QueryView = {
    if (isLooking.compareAndSet(false, true)) {
      val asks: Runnable = () =>
        try last = QueryView.of(query)
        finally isLooking.set(false)
      val asked = QueryMetrics.Looks.submit(asks)
      try asked.get(QueryMetrics.MaxWaitMs, TimeUnit.MILLISECONDS)
      catch { case _: TimeoutException => () }
    }
    last
  }

  private def gauge[T](name: String)(read: QueryView => T): Unit =
    metricRegistry.register(name, (() => read(view.getValue)): Gauge[T])
}

private object QueryMetrics {
  private val MaxWaitMs = 1000L
  private lazy val Looks = ThreadUtils.newDaemonCachedThreadPool("binshift-metrics", 16)
}
