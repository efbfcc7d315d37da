package org.apache.spark.sql.binshift.migration

import java.util.concurrent.ConcurrentHashMap

import org.apache.spark.SparkEnv
import org.apache.spark.rpc.{RpcCallContext, RpcEnv, ThreadSafeRpcEndpoint}
import org.apache.spark.sql.execution.streaming.state.binshift.shipping.{StandbyAnswer, StandbyReport, StandbyStores}

/**
 * Receives messages of executors about how far their standbys have come, once an interval each, and answers which standbys are wanted.
 *
 * Relies on Spark: an endpoint that is set up on the driver is reached by the connections that executors have already.
 */
private final class StandbyEndpoint(override val rpcEnv: RpcEnv) extends ThreadSafeRpcEndpoint {
  import StandbyEndpoint._

  override def receiveAndReply(context: RpcCallContext): PartialFunction[Any, Unit] = {
    case bytes: Array[Byte] =>
      val report = StandbyReport.parse(bytes)
      context.reply(Option(listeners.get(report.runId)).flatMap(_.answer(report)).fold(StandbyAnswer.End)(_.toBytes))
  }
}

private[migration] object StandbyEndpoint {
  /** Answers for a run of a query. Called on a thread of Spark's network layer, which must not wait. */
  trait Listener {
    /** `None` if the run has ended. */
    def answer(report: StandbyReport): Option[StandbyAnswer]
  }

  /** By run id. */
  private val listeners = new ConcurrentHashMap[String, Listener]()
  private var registered: Option[RpcEnv] = None

  def add(runId: String, listener: Listener): Unit = {
    listeners.put(runId, listener)
    register(SparkEnv.get.rpcEnv)
  }

  def remove(runId: String): Unit = listeners.remove(runId)

  /** A new context in this JVM has another network layer. */
  private def register(env: RpcEnv): Unit = synchronized {
    if (!registered.exists(_ eq env)) {
      env.setupEndpoint(StandbyStores.EndpointName, new StandbyEndpoint(env))
      registered = Some(env)
    }
  }
}
