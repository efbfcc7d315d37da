package org.apache.spark.sql.binshift.query

import java.io.IOException
import java.nio.charset.StandardCharsets.{ISO_8859_1, UTF_8}
import java.nio.file.{Files, InvalidPathException, Paths}
import java.util.Locale

import scala.util.Try

import org.apache.spark.network.util.JavaUtils
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.streaming.state.binshift.{BinshiftConf, BinshiftException, Trace}
import org.apache.spark.sql.execution.streaming.state.binshift.shipping.{BackgroundConf, StandbyConf}

/**
 * Settings that the driver reads, once for each run of a query; see docs/settings.md.
 *
 * @param entriesToRetain    entries of the routing log that are kept, beyond those that recovery needs
 * @param maxEpochsToWait    epochs without progress of its copies that a step waits
 * @param areRequestsServed  whether the checkpoint is searched for requests of other processes
 * @param requestsIntervalMs between two searches, while nobody asks
 * @param standbys           executors that keep the files of each partition for when its own dies
 * @param standby            what they may use
 * @param evacuates          whether partitions leave executors that Spark decommissions, without a user's call
 * @param auditedBins        bins of each step that are audited; none if 0
 * @param requestsSecret     what requests have to be signed with; `None` if they need not be
 */
private[binshift] final case class DriverConf(
    entriesToRetain: Int, maxEpochsToWait: Int, areRequestsServed: Boolean, requestsIntervalMs: Long,
    evacuates: Boolean, standbys: Int, standby: StandbyConf, auditedBins: Int,
    requestsSecret: Option[Array[Byte]] = None)

private[binshift] object DriverConf {
  private val Secret = "BINSHIFT_REQUESTS_SECRET"
  private val SecretFile = "BINSHIFT_REQUESTS_SECRET_FILE"
  /** A shorter secret could be guessed. */
  private val SecretBytes = 16
  /** Each standby costs disk and requests, and more than two machines seldom die at once. */
  private val MaxStandbys = 3

  /**
   * @param session the query's own, with the settings as of its start
   * @throws BinshiftException if a setting is unknown or has an impossible value, or the secret that it asks for is not there
   */
  def of(session: SparkSession): DriverConf = {
    KnownSettings.require(session.sessionState.conf.getAllConfs.keys)
    def setting[A](key: String, default: A, wanted: String)(parse: String => Option[A]): A =
      session.conf.getOption(key).fold(default) { text =>
        parse(text).getOrElse(
          throw BinshiftException("INVALID_VALUE", "name" -> key, "value" -> text).configuration(
            s"$key is '$text'; it must be $wanted"))
      }
    def count(key: String, default: Int): Int =
      setting(key, default, "a whole number of at least 0")(_.toIntOption.filter(_ >= 0))
    for (dir <- session.conf.getOption(BinshiftConf.Trace) if !Trace.folder.contains(dir))
      throw BinshiftException("INVALID_VALUE", "name" -> BinshiftConf.Trace, "value" -> dir).configuration(
        s"${BinshiftConf.Trace} is '$dir' in the query's session, and ${Trace.folder.getOrElse("nothing")} in the application; executors " +
          "read it when they start, so set it by spark-submit --conf or before the session is made")
    val enabled = setting(BinshiftConf.RequestsEnabled, "true", "true, false or signed")(text =>
      Some(text.trim.toLowerCase(Locale.ROOT)).filter(Set("true", "false", "signed")))
    DriverConf(
      entriesToRetain = count(BinshiftConf.RoutingEntriesToRetain, 256),
      maxEpochsToWait = count(BinshiftConf.MaxEpochsToWait, 120),
      areRequestsServed = enabled != "false",
      requestsIntervalMs = setting(BinshiftConf.RequestsInterval, 5000L, "a time of at least 50ms, such as 5s")(text =>
        Try(JavaUtils.timeStringAsMs(text)).toOption.filter(_ >= 50)),
      evacuates = setting(BinshiftConf.EvacuationEnabled, true, "true or false")(_.trim.toLowerCase(Locale.ROOT).toBooleanOption),
      standbys = setting(BinshiftConf.Standbys, 0, s"a whole number from 0 to $MaxStandbys")(
        _.trim.toIntOption.filter(n => n >= 0 && n <= MaxStandbys)),
      standby = StandbyConf(session.sessionState.conf.getAllConfs),
      auditedBins = BackgroundConf(session.sessionState.conf.getAllConfs).auditedBins,
      requestsSecret =
        Option.when(enabled == "signed")(secret(session.conf.getOption(BinshiftConf.RequestsSecretFile), sys.env)))
  }

  /** The secret from the file that a setting or the environment names, or from the environment itself. */
  private def secret(file: Option[String], environment: Map[String, String]): Array[Byte] = {
    val named = file.orElse(environment.get(SecretFile))
    val found = named match {
      case Some(name) =>
        try Some(Files.readAllBytes(Paths.get(name)))
        catch {
          case e @ (_: IOException | _: InvalidPathException) => throw withoutSecret(s"$name cannot be read (${e.getMessage})")
        }
      case None => environment.get(Secret).map(_.getBytes(UTF_8))
    }
    // Editors end a file with a line feed.
    val trimmed = new String(found.getOrElse(throw withoutSecret("there is none")), ISO_8859_1).trim.getBytes(ISO_8859_1)
    if (trimmed.length < SecretBytes) throw withoutSecret(s"it has ${trimmed.length} bytes, and $SecretBytes are needed")
    trimmed
  }

  private def withoutSecret(why: String): BinshiftException =
    BinshiftException("INVALID_VALUE", "name" -> BinshiftConf.RequestsEnabled, "value" -> "signed").configuration(
      s"${BinshiftConf.RequestsEnabled} is 'signed', and the secret is missing: $why; set ${BinshiftConf.RequestsSecretFile} " +
        s"to a file of the driver, or $SecretFile or $Secret in its environment")
}
