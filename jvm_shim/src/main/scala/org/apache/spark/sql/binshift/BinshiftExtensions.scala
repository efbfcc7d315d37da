package org.apache.spark.sql.binshift

import java.util.{Collections, WeakHashMap}

import org.apache.spark.sql.binshift.sql.BinshiftCatalog
import org.apache.spark.sql.binshift.stock.OfflineRepartition
import org.apache.spark.sql.{SparkSessionExtensions, SparkSessionExtensionsProvider}
import org.apache.spark.sql.catalyst.rules.Rule
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.{ColumnarRule, SparkPlan}

/**
 * Registers binshift's rules in every session. `java.util.ServiceLoader` finds this class, so a session only needs the jar on the
 * class path.
 *
 * Relies on Spark: `preColumnarTransitions` rules see the physical plan of each micro-batch after
 * `EnsureRequirements` has placed the exchanges, and nothing after them checks distributions again.
 */
class BinshiftExtensions extends SparkSessionExtensionsProvider {
  override def apply(extensions: SparkSessionExtensions): Unit = if (BinshiftExtensions.claim(extensions)) {
    extensions.injectPostHocResolutionRule { session =>
      // This runs when the analyser is created, before it looks up a catalog.
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
  /** Extensions that have the rules; compared by identity, because they define no equality. */
  private val claimed = Collections.newSetFromMap(new WeakHashMap[SparkSessionExtensions, java.lang.Boolean]())

  /** Returns true only for the first caller, so that no session gets a rule twice. */
  private def claim(extensions: SparkSessionExtensions): Boolean = claimed.synchronized(claimed.add(extensions))

  /** True if queries that the session starts from now on have the rules. */
  def isActive(session: SparkSession): Boolean = claimed.synchronized(claimed.contains(session.extensions))

  /**
   * Adds the rules to a session that existed before the jar, and to all sessions made from it.
   *
   * Relies on Spark: a session and those made from it share one mutable object of extensions. Each query runs in a clone of its
   * session, which builds its columnar rules from that object when the query starts. The session's own analyser has been built
   * already, so this method does what its first analysis would have done.
   */
  def activate(session: SparkSession): Unit = {
    new BinshiftExtensions().apply(session.extensions)
    OfflineRepartition.guard(session)
    QueryObserver.register(session)
    BinshiftCatalog.register(session)
  }
}
