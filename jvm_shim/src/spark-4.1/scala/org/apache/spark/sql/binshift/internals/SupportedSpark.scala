package org.apache.spark.sql.binshift.internals

private[binshift] object SupportedSpark {
  /** The Spark that this jar was made for. */
  val Minor = "4.1"
}
