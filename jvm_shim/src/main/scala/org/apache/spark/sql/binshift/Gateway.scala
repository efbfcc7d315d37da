package org.apache.spark.sql.binshift

import java.io.File

import org.apache.spark.sql.binshift.client.AttachedQuery
import org.apache.spark.sql.binshift.internals.{JarVersion, SparkInternals}
import org.apache.spark.sql.binshift.query.{KnownSettings, QueryHandle}
import org.apache.spark.sql.binshift.stock.{Conversion, ConversionOptions}
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.streaming.StreamingQuery

/**
 * The whole of what Python calls, through py4j. Narrow on purpose: a call costs about a millisecond,
 * so each answers a whole question, as JSON. Failures are `BinshiftException`s.
 */
object Gateway {

  /** Version of the jar, to be compared with that of the Python package. */
  def version: String = JarVersion.version

  def requireSupportedVersion(sparkVersion: String): Unit =
    SparkInternals.requireSupportedVersion(sparkVersion)

  /**
   * Refuses settings that a session is to have and that binshift does not know. Each query looks again when it starts.
   *
   * @param keys with line feeds between them
   */
  def requireKnownSettings(keys: String): Unit = KnownSettings.require(keys.linesIterator.toSeq)

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

  def attach(query: StreamingQuery): QueryHandle = new QueryHandle(AttachedQuery.of(query))

  /** @param partitions 0 for as many as there are */
  def conversion(
      session: SparkSession, checkpoint: String, output: String, to: String, partitions: Int, force: Boolean): Conversion = {
    SparkInternals.requireSupportedVersion()
    Conversion.of(session, ConversionOptions(checkpoint, output, to, Option.when(partitions != 0)(partitions), force))
  }
}
