package binshift.tests

import java.util.concurrent.ConcurrentLinkedQueue

import scala.jdk.CollectionConverters._

import org.apache.spark.sql.execution.QueryExecution
import org.apache.spark.sql.util.QueryExecutionListener

/** Keeps the plans of all executions of a session, as a listener of a user might print them. */
class TestExecutions extends QueryExecutionListener {
  private val heard = new ConcurrentLinkedQueue[String]()
  private val failed = new ConcurrentLinkedQueue[String]()

  override def onSuccess(function: String, execution: QueryExecution, durationNs: Long): Unit = {
    val plan = execution.executedPlan
    heard.add(Seq(execution.toString, plan.toJSON, plan.canonicalized.treeString, plan.outputPartitioning.toString).mkString(
        "\n"))
  }

  override def onFailure(function: String, execution: QueryExecution, error: Exception): Unit = failed.add(error.toString)

  def plans: java.util.List[String] = heard.asScala.toSeq.asJava

  def failures: java.util.List[String] = failed.asScala.toSeq.asJava
}
