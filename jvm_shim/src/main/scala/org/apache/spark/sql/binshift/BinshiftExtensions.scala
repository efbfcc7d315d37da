package org.apache.spark.sql.binshift

import java.util.{Collections, WeakHashMap}

import org.apache.spark.sql.binshift.sql.BinshiftCatalog
import org.apache.spark.sql.binshift.stock.OfflineRepartition
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
  override def apply(extensions: SparkSessionExtensions): Unit = if (BinshiftExtensions.claim(extensions)) {
    extensions.injectPostHocResolutionRule { session =>
      // When the analyser is made, before it looks up a catalog.
      BinshiftCatalog.register(session.asInstanceOf[SparkSession])
      RegisterQueryObserver(session.asInstanceOf[SparkSession])
    }
    extensions.injectColumnar { session =>
      new ColumnarRule {
        override def preColumnarTransitions: Rule[SparkPlan] =
          RoutingRule(session.asInstanceOf[SparkSession])
      }
    }
  }
}

private[binshift] object BinshiftExtensions {
  /** Those that have the rules; compared by identity, as they define no equality. */
  private val claimed = Collections.newSetFromMap(new WeakHashMap[SparkSessionExtensions, java.lang.Boolean]())

  /** True for whoever comes first, so that no session has a rule twice. */
  private def claim(extensions: SparkSessionExtensions): Boolean = claimed.synchronized(claimed.add(extensions))

  /** Whether queries that the session starts from now on have the rules. */
  def isActive(session: SparkSession): Boolean = claimed.synchronized(claimed.contains(session.extensions))

  /**
   * Makes the rules those of a session that was there before the jar, and of all that are made from it.
   *
   * Relies on Spark: a session and those made of it share one mutable object of extensions, and the clone of a session that a
   * query runs in builds its columnar rules from it anew, when the query is started. The analyser of the
   * session itself has been built, so what its first analysis would have done is done here.
   */
  def activate(session: SparkSession): Unit = {
    new BinshiftExtensions().apply(session.extensions)
    OfflineRepartition.guard(session)
    QueryObserver.register(session)
    BinshiftCatalog.register(session)
  }
}
