package org.apache.spark.sql.execution.streaming.state.binshift

import java.util.UUID

import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.classic.ClassicConversions._
import org.apache.spark.sql.execution.streaming.runtime.StreamExecution
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.types.{LongType, StringType, StructType}

/** A store of a query in a session where binshift's rules are not active. */
object TestUnrouted {
  private val Keys = new StructType().add("k", StringType)
  private val Values = new StructType().add("n", LongType).add("total", LongType)

  /** Commits a version without changes; returns the innermost cause of the query's error. */
  def commit(spark: SparkSession, checkpoint: String, partition: Int, version: Long): String = {
    val state = spark.sessionState
    val hadoopConf = state.newHadoopConf()
    hadoopConf.set(StreamExecution.RUN_ID_KEY, UUID.randomUUID().toString)
    val id = StateStoreProviderId(StateStoreId(s"$checkpoint/state", 0, partition), UUID.randomUUID())
    val provider = StateStoreProvider.createAndInit(id, Keys, Values, NoPrefixKeyStateEncoderSpec(Keys),
      useColumnFamilies = false, new StateStoreConf(state.conf), hadoopConf, useMultipleValuesPerKey = false, None)
    try {
      val store = provider.getStore(version)
      try store.commit()
      catch {
        // Does the same as a failing task of Spark.
        case e: Exception =>
          store.abort()
          throw e
      }
      "committed"
    } catch {
      case e: Exception => Iterator.iterate[Throwable](e)(_.getCause).takeWhile(_ != null).toSeq.last.getMessage
    } finally provider.close()
  }
}
