package org.apache.spark.sql.execution.streaming.state.binshift.shipping

import com.codahale.metrics.Gauge

import org.apache.spark.SparkEnv
import org.apache.spark.internal.config.CPUS_PER_TASK

/**
 * Tells whether this executor has a core on which no task runs. Background work waits for one, so that it uses the stream's pauses
 * rather than its cores.
 */
private[binshift] object ExecutorLoad {
  private lazy val cores: Int = SparkEnv.get.conf.getOption("spark.executor.cores").map(_.toInt)
    .getOrElse(Runtime.getRuntime.availableProcessors)
  private lazy val coresPerTask: Double = SparkEnv.get.conf.get(CPUS_PER_TASK).toDouble

  /**
   * Relies on Spark: an executor, including that of a local master, has a metrics source of this name with this gauge. Without it,
   * all cores always seem to be free.
   */
  private lazy val activeTasks: () => Int =
    SparkEnv.get.metricsSystem.getSourcesByName("executor").headOption
      .flatMap(source => Option(source.metricRegistry.getGauges.get("threadpool.activeTasks")))
      .fold(() => 0)(gauge => () => gauge.asInstanceOf[Gauge[Int]].getValue)

  def hasFreeCore: Boolean = activeTasks() * coresPerTask < cores

  /** True if no task runs here. */
  def isIdle: Boolean = activeTasks() == 0

  /** Waits for a free core, but no longer than `maxNs`, so that copies progress on a busy executor, too. */
  def awaitFreeCore(maxNs: Long): Unit = {
    val deadline = System.nanoTime() + maxNs
    while (!hasFreeCore && System.nanoTime() < deadline) Thread.sleep(PollMs)
  }

  private val PollMs = 5L
}
