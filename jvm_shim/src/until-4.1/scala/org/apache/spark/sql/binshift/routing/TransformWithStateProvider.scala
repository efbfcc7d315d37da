package org.apache.spark.sql.binshift.routing

import org.apache.spark.sql.execution.SparkPlan

/** Lets `transformWithState` run with binshift's provider. Spark 4.1 only requires a provider with column families. */
private[binshift] object TransformWithStateProvider {
  def accept(plan: SparkPlan): SparkPlan = plan
}
