package org.apache.spark.sql.binshift.migration

import java.util.concurrent.ConcurrentHashMap

import org.apache.spark.SparkEnv
import org.apache.spark.rpc.{RpcCallContext, RpcEnv, ThreadSafeRpcEndpoint}

/**
 * Receives messages of executors on the driver, each of which concerns a run of a query, and answers them.
 *
 * Relies on Spark: executors can reach an endpoint that is set up later over the connections that they have already.
 *
 * @tparam L    the type of objects that listen to messages about a run
 * @param name name of the endpoint, by which executors find it
 */
private[migration] abstract class RunEndpoint[L](name: String) {
  /** The listeners, by run id. */
  private val listeners = new ConcurrentHashMap[String, L]()
  private var registered = Option.empty[RpcEnv]

  /** Answers a message. Called on a thread of Spark's network layer, which must not wait. */
  protected def answer(message: Array[Byte]): Array[Byte]

  /** The listener of a run; `None` if the run has ended, or belongs to another driver. */
  protected final def listenerOf(runId: String): Option[L] = Option(listeners.get(runId))

  def add(runId: String, listener: L): Unit = {
    listeners.put(runId, listener)
    register(SparkEnv.get.rpcEnv)
  }

  def remove(runId: String): Unit = listeners.remove(runId)

  /** Registers the endpoint again if there is another context in this JVM, which has a network layer of its own. */
  private def register(env: RpcEnv): Unit = synchronized {
    if (!registered.exists(_ eq env)) {
      env.setupEndpoint(name, new Endpoint(env))
      registered = Some(env)
    }
  }

  private final class Endpoint(override val rpcEnv: RpcEnv) extends ThreadSafeRpcEndpoint {
    override def receiveAndReply(context: RpcCallContext): PartialFunction[Any, Unit] = {
      case bytes: Array[Byte] => context.reply(answer(bytes))
    }
  }
}
