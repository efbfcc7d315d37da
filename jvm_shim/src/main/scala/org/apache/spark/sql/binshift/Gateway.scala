package org.apache.spark.sql.binshift

import java.io.File

import org.apache.spark.sql.binshift.client.AttachedQuery
import org.apache.spark.sql.binshift.internals.{JarVersion, SparkInternals}
import org.apache.spark.sql.binshift.query.{KnownSettings, QueryHandle}
import org.apache.spark.sql.binshift.stock.{Conversion, ConversionOptions}
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.streaming.StreamingQuery

/**
 * Everything that Python calls through py4j. The interface is narrow on purpose: a call costs about a millisecond, so each call
 * answers a whole question, as JSON. Failures are `BinshiftException`s.
 */
object Gateway {

  /** Version of the jar. Python compares it with the version of its package. */
  def version: String = JarVersion.version

  def requireSupportedVersion(sparkVersion: String): Unit =
    SparkInternals.requireSupportedVersion(sparkVersion)

  /**
   * Refuses settings for a session that binshift doesn't know. Each query checks again when it starts.
   *
   * @param keys the settings' keys, separated by line feeds
   */
  def requireKnownSettings(keys: String): Unit = KnownSettings.require(keys.linesIterator.toSeq)

  /**
   * Makes binshift active in a session, whether its jar was loaded before the session or later.
   *
   * @param jar the jar's path on the driver; given to the executors unless they get a jar of that name anyway
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
