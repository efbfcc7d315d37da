package org.apache.spark.sql.binshift.ui

import java.util.Collections
import java.util.WeakHashMap

import jakarta.servlet.http.{HttpServlet, HttpServletRequest, HttpServletResponse}

import org.apache.spark.SparkContext
import org.apache.spark.ui.{SparkUI, SparkUITab, WebUI}

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

/** Gives the script of the page. */
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

  /** Below the root of the UI. */
  val ScriptPath = "/bins/script/"

  private val attached = Collections.newSetFromMap(new WeakHashMap[SparkContext, java.lang.Boolean])

  /** Once per application. */
  def attach(context: SparkContext): Unit = synchronized {
    if (attached.add(context)) context.ui.foreach { ui =>
      ui.attachTab(new BinsTab(ui))
      attachScript(ui)
    }
  }

  /**
   * The script is a file of its own, because Spark's Content-Security-Policy allows those, and none within a page.
   *
   * Relies on Spark: `WebUI.attachHandler` takes a servlet. It is called by reflection, because its overloads name classes of Jetty
   * that Spark's jars have under other names, so that the compiler finds none of them.
   */
  private def attachScript(ui: SparkUI): Unit =
    classOf[WebUI].getMethod("attachHandler", classOf[String], classOf[HttpServlet], classOf[String])
      .invoke(ui, ScriptPath.stripSuffix("/"), new ScriptServlet, "/")
}
