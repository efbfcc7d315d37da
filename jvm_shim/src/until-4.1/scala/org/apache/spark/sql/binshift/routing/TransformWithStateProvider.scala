package org.apache.spark.sql.binshift.routing

import org.apache.spark.sql.execution.SparkPlan

/** Lets `transformWithState` run with binshift's provider, of which Spark 4.1 asks nothing but column families. */
private[binshift] object TransformWithStateProvider {
  def accept(plan: SparkPlan): SparkPlan = plan
}
