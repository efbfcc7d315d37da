package org.apache.spark.sql.binshift.ui

import java.util.concurrent.atomic.AtomicLong

import com.codahale.metrics.{Gauge, MetricRegistry}

import org.apache.spark.metrics.source.Source

/**
 * The metrics of one run of a query in Spark's metrics system, under `binshift.<query's name or id>`. Any
 * thread may read them.
 */
private[binshift] final class QueryMetrics(view: Latest[QueryView], val sourceName: String) extends Source {
  override val metricRegistry = new MetricRegistry

  private val binsAdopted = new AtomicLong
  private val bytesAdopted = new AtomicLong

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

  /** Adds the bins and bytes that an epoch's switch has moved, over all operators. */
  def adopted(bins: Long, bytes: Long): Unit = {
    binsAdopted.addAndGet(bins)
    bytesAdopted.addAndGet(bytes)
  }

  private def gauge[T](name: String)(read: QueryView => T): Unit =
    metricRegistry.register(name, (() => read(view.get())): Gauge[T])
}
