package org.apache.spark.sql.binshift.migration

import java.util.concurrent.ConcurrentHashMap

import org.apache.spark.SparkEnv
import org.apache.spark.rpc.{RpcCallContext, RpcEnv, ThreadSafeRpcEndpoint}
import org.apache.spark.sql.execution.streaming.state.binshift.migration.AuditReport

/**
 * Hears from executors what their audits have found. Results of tasks would tell it later, and not at all while a query has no data.
 *
 * Relies on Spark: an endpoint that is set up on the driver is reached by the connections that executors have already.
 */
private final class AuditEndpoint(override val rpcEnv: RpcEnv) extends ThreadSafeRpcEndpoint {
  override def receiveAndReply(context: RpcCallContext): PartialFunction[Any, Unit] = {
    case bytes: Array[Byte] =>
      val report = AuditReport.parse(bytes)
      Option(AuditEndpoint.listeners.get(report.runId)).foreach(_.hear(report))
      context.reply(Array.emptyByteArray)
  }
}

private[migration] object AuditEndpoint {
  /** By run id. Reports of other runs are of nobody's interest any more. */
  private val listeners = new ConcurrentHashMap[String, Audits]()
  private var registered = Option.empty[RpcEnv]

  def add(runId: String, audits: Audits): Unit = {
    listeners.put(runId, audits)
    register(SparkEnv.get.rpcEnv)
  }

  def remove(runId: String): Unit = listeners.remove(runId)

  /** A new context in this JVM has another network layer. */
  private def register(env: RpcEnv): Unit = synchronized {
    if (!registered.exists(_ eq env)) {
      env.setupEndpoint(AuditReport.EndpointName, new AuditEndpoint(env))
      registered = Some(env)
    }
  }
}
