package org.apache.spark.sql.binshift.ui

import java.util.Collections
import java.util.WeakHashMap

import jakarta.servlet.http.{HttpServlet, HttpServletRequest, HttpServletResponse}

import org.apache.spark.SparkContext
import org.apache.spark.ui.{SparkUI, SparkUITab, WebUI}

/**
 * The tab "Bins" in the UI of an application.
 *
 * Relies on Spark: a tab may be attached while the UI runs. If the UI is not enabled, it doesn't exist.
 */
private[binshift] final class BinsTab(ui: SparkUI) extends SparkUITab(ui, "bins") {
  private[binshift] def parentUi: SparkUI = ui

  override val name = "Bins"
  attachPage(new BinsPage(this))
}

/** Serves the script of the page. */
private final class ScriptServlet extends HttpServlet {
  private lazy val script: Array[Byte] = {
    val file = classOf[BinsTab].getResourceAsStream("bins-tab.js")
    try file.readAllBytes()
    finally file.close()
  }

  override protected def doGet(request: HttpServletRequest, response: HttpServletResponse): Unit = {
    response.setContentType("text/javascript;charset=utf-8")
    response.getOutputStream.write(script)
  }
}

private[binshift] object BinsTab {

  /** Path below the root of the UI. */
  val ScriptPath = "/bins/script/"

  private val attached = Collections.newSetFromMap(new WeakHashMap[SparkContext, java.lang.Boolean])

  /** Attaches the tab, but only once per application. */
  def attach(context: SparkContext): Unit = synchronized {
    if (attached.add(context)) context.ui.foreach { ui =>
      ui.attachTab(new BinsTab(ui))
      attachScript(ui)
    }
  }

  /**
   * Serves the page's script as a file of its own, because Spark's Content-Security-Policy forbids scripts within a page.
   *
   * Relies on Spark: `WebUI.attachHandler` accepts a servlet. It is called by reflection, because its overloads refer to classes
   * of Jetty by names that they don't have in Spark's jars, so the compiler can't resolve the call.
   */
  private def attachScript(ui: SparkUI): Unit =
    classOf[WebUI].getMethod("attachHandler", classOf[String], classOf[HttpServlet], classOf[String])
      .invoke(ui, ScriptPath.stripSuffix("/"), new ScriptServlet, "/")
}
