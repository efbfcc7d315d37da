package org.apache.spark.sql.execution.streaming.state.binshift

import org.apache.spark.{SparkConf, SparkEnv}

/** Spark's settings in this process; its defaults where there is no Spark, as in tools that only read. */
private[binshift] object ProcessConf {
  def apply(): SparkConf = Option(SparkEnv.get).map(_.conf).getOrElse(new SparkConf)
}
