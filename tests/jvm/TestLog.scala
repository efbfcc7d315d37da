package org.apache.spark.sql.binshift

import java.util.concurrent.ConcurrentLinkedQueue

import scala.jdk.CollectionConverters._

import org.apache.logging.log4j.{Level, LogManager}
import org.apache.logging.log4j.core.{Logger, LogEvent}
import org.apache.logging.log4j.core.appender.AbstractAppender
import org.apache.logging.log4j.core.config.Property

/** Listens to what binshift logs in this JVM. */
object TestLog {
  private val lines = new ConcurrentLinkedQueue[String]()
  private val appender = new AbstractAppender("binshift-test", null, null, true, Property.EMPTY_ARRAY) {
    override def append(event: LogEvent): Unit = lines.add(s"${event.getLevel} ${event.getMessage.getFormattedMessage}")
  }
  private val names = Seq("org.apache.spark.sql.binshift.migration.StepScheduler",
    "org.apache.spark.sql.binshift.migration.ShipmentCoordinator",
    "org.apache.spark.sql.binshift.migration.Executors",
    "org.apache.spark.sql.binshift.query.FirstEpoch",
    "org.apache.spark.sql.binshift.query.RemoteRequests",
    "org.apache.spark.sql.execution.streaming.state.binshift.provider.KeyCheck")
  /** Kept here, because log4j forgets a logger that nobody has, and its level with it. */
  private lazy val loggers = names.map(loggerOf)

  def listen(): Unit = {
    lines.clear()
    if (!appender.isStarted) appender.start()
    // In this order: an appender gives all loggers the levels of the configuration.
    loggers.foreach(_.addAppender(appender))
    loggers.foreach(_.setLevel(Level.INFO))
  }

  def heard(): java.util.List[String] = lines.asScala.toSeq.asJava

  def end(): Unit = {
    loggers.foreach(_.removeAppender(appender))
    loggers.foreach(_.setLevel(Level.OFF))
  }

  /** Spark's loggers, which are those of the class loader that Spark is in. */
  private def loggerOf(name: String): Logger =
    LogManager.getContext(classOf[org.apache.spark.SparkContext].getClassLoader, false).getLogger(name).asInstanceOf[Logger]
}
