package org.apache.spark.sql.binshift

import java.io.File

import org.apache.spark.sql.binshift.internals.{JarVersion, QueryFailure, SparkInternals}
import org.apache.spark.sql.binshift.query.{QueryHandle, QueryStarts}
import org.apache.spark.sql.binshift.realtime.RealTimeMode
import org.apache.spark.sql.binshift.stock.{Conversion, ConversionOptions, TakeoverEpochs}
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.streaming.runtime.{MicroBatchExecution, StreamExecution, StreamingQueryWrapper}
import org.apache.spark.sql.execution.streaming.state.binshift.BinshiftException
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.streaming.StreamingQuery

/**
 * The whole of what Python calls, through py4j. Narrow on purpose: a call costs about a millisecond,
 * so each answers a whole question, as JSON. Failures are [[BinshiftException]]s.
 */
object Gateway {

  /** Version of the jar, to be compared with that of the Python package. */
  def version: String = JarVersion.version

  def requireSupportedVersion(sparkVersion: String): Unit =
    SparkInternals.requireSupportedVersion(sparkVersion)

  /**
   * Makes binshift active in a session, whether its jar was there before the session or came later.
   *
   * @param jar the jar's path, as the driver sees it; given to the executors unless they get one of its name anyway
   */
  def activate(session: SparkSession, jar: String): Unit = {
    SparkInternals.requireSupportedVersion()
    val name = new File(jar).getName
    if (!session.sparkContext.listJars().exists(_.endsWith(s"/$name"))) session.sparkContext.addJar(jar)
    BinshiftExtensions.activate(session)
  }

  def attach(query: StreamingQuery): QueryHandle = {
    SparkInternals.requireSupportedVersion()
    execution(query) match {
      case m: MicroBatchExecution =>
        if (!m.isActive) throw QueryFailure.ended(m)
        requireBinshift(m)
        new QueryHandle(m)
      case other => throw BinshiftException("NOT_A_MICROBATCH_QUERY").configuration(
          s"query ${other.id} runs with trigger ${other.trigger}; only micro-batch queries can be rescaled")
    }
  }

  /** @param partitions 0 for as many as there are */
  def conversion(session: SparkSession, checkpoint: String, output: String, to: String, partitions: Int): Conversion = {
    SparkInternals.requireSupportedVersion()
    new Conversion(session, ConversionOptions(checkpoint, output, to, Option.when(partitions != 0)(partitions)))
  }

  private def execution(query: StreamingQuery): StreamExecution = query match {
    case w: StreamingQueryWrapper => w.streamingQuery
    case e: StreamExecution => e
    case other => throw BinshiftException("NOT_A_MICROBATCH_QUERY").configuration(
        s"${other.getClass.getName} is no query of this Spark session")
  }

  private def requireBinshift(query: MicroBatchExecution): Unit = {
    val wanted = query.sparkSession.sessionState.conf.getConf(SQLConf.STATE_STORE_PROVIDER_CLASS)
    val logged = SparkInternals.lastLogged(query).flatMap(_.providerClass)
    // In real-time mode a query gets its provider when it starts, and its first epoch is logged when it ends.
    val used = logged.getOrElse(query.sparkSessionForStream.sessionState.conf.getConf(SQLConf.STATE_STORE_PROVIDER_CLASS))
    if (!SparkInternals.isBinshiftProvider(used) && TakeoverEpochs.of(query.runId).isEmpty) {
      val reason = if (SparkInternals.isBinshiftProvider(wanted)) {
        s"the checkpoint ${query.resolvedCheckpointRoot} was started with provider $used, and Spark keeps a " +
          s"checkpoint's provider whatever the session says; ${TakeoverEpochs.reasonAgainst(used)}"
      } else {
        val arguments = if (RealTimeMode.isOf(query)) "builder, real_time=True" else "builder"
        s"query ${query.id} uses provider $used; start it in a session made with binshift.configure($arguments)"
      }
      throw BinshiftException("PROVIDER_NOT_BINSHIFT", "provider" -> used).configuration(reason)
    }
    // Relies on Spark: `start` returns once the listeners have heard of the query.
    if (!QueryStarts.isSeen(query.runId)) throw QueryStarts.unseen(query)
  }
}
