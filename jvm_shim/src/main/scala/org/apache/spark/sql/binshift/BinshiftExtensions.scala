package org.apache.spark.sql.binshift

import org.apache.spark.sql.{SparkSessionExtensions, SparkSessionExtensionsProvider}
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.{ColumnarRule, SparkPlan}

/**
 * Registers binshift's rules in every session; found by `java.util.ServiceLoader`, so that the jar on
 * the class path is all a session needs.
 *
 * Relies on Spark: `preColumnarTransitions` rules see the physical plan of each micro-batch after
 * `EnsureRequirements` has placed the exchanges, and nothing after them checks distributions again.
 */
class BinshiftExtensions extends SparkSessionExtensionsProvider {
  override def apply(extensions: SparkSessionExtensions): Unit = {
    extensions.injectPostHocResolutionRule { session =>
      RegisterQueryStarts(session.asInstanceOf[SparkSession])
    }
    extensions.injectColumnar { session =>
      new ColumnarRule {
        override def preColumnarTransitions: Rule[SparkPlan] =
          RoutingRule(session.asInstanceOf[SparkSession])
      }
    }
  }
}
