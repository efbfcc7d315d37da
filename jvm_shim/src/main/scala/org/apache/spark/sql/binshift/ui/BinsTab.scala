package org.apache.spark.sql.binshift.ui

import java.util.Collections
import java.util.WeakHashMap

import org.apache.spark.SparkContext
import org.apache.spark.ui.{SparkUI, SparkUITab}

/**
 * The tab "Bins" in the UI of an application.
 *
 * Relies on Spark: tabs may be attached while the UI runs; one that is not enabled does not exist.
 */
private[binshift] final class BinsTab(ui: SparkUI) extends SparkUITab(ui, "bins") {
  private[binshift] def parentUi: SparkUI = ui

  override val name = "Bins"
  attachPage(new BinsPage(this))
}

private[binshift] object BinsTab {
  private val attached = Collections.newSetFromMap(new WeakHashMap[SparkContext, java.lang.Boolean])

  /** Once per application. */
  def attach(context: SparkContext): Unit = synchronized {
    if (attached.add(context)) context.ui.foreach(ui => ui.attachTab(new BinsTab(ui)))
  }
}
