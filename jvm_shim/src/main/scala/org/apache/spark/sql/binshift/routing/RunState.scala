package org.apache.spark.sql.binshift.routing

import org.apache.spark.sql.execution.streaming.operators.stateful.StateStoreWriter
import org.apache.spark.sql.execution.streaming.state.binshift.checkpoint.{Layout, Storage}

/**
 * What the parts of a run share: the epoch that was planned last, and the lock under which an epoch is planned and migrations change.
 *
 * Whoever changes the state holds the lock; reading it takes none.
 */
private[binshift] final class RunState(atStart: PlannedEpoch) {
  @volatile private var state = atStart

  def now: PlannedEpoch = state

  def become(change: PlannedEpoch => PlannedEpoch): Unit = synchronized { state = change(state) }
}

/**
 * The epoch that a run has planned last.
 *
 * @param epoch      `None` before the run has planned one
 * @param tables     before that, the table as an earlier run left it
 * @param operators  the operators of its plan
 * @param isAgain    whether an earlier run has logged it, or may be in the middle of it
 * @param loggedAtMs when it was logged; `None` in real-time mode, where an epoch is logged when it ends
 */
private[binshift] final case class PlannedEpoch(
    layout: Option[Layout], tables: TablesInForce, epoch: Option[Long] = None, operators: Seq[StateStoreWriter] = Nil,
    isAgain: Boolean = false, loggedAtMs: Option[Long] = None) {

  def partitions: Int = operators.headOption.fold(0)(_.getStateInfo.numPartitions)

  /** True if the names of the versions that the epoch loads contain ids. */
  def hasIds: Boolean = operators.headOption.exists(_.getStateInfo.stateStoreCkptIds.isDefined)

  /** The operators whose state follows the routing table. */
  def binned: Seq[StateStoreWriter] = operators.filter(storageOf(_).contains(Storage.Binned))

  /** True if an operator has a store of a partition. All rows of some operators are in their partition 0. */
  def hasState(op: StateStoreWriter, partition: Int): Boolean = partition == 0 || !storageOf(op).contains(Storage.Single)

  /** Names of the stores of each operator whose bins move. */
  def storeNames: Map[Long, Seq[String]] = binned.map(op => StatefulOperators.idOf(op) -> op.stateStoreNames).toMap

  /** The stores that each bin has rows in, by operator. */
  def stores: Seq[(Long, String)] = for ((operator, names) <- storeNames.toSeq; store <- names) yield operator -> store

  private def storageOf(op: StateStoreWriter): Option[Storage] =
    layout.flatMap(_.operators.get(StatefulOperators.idOf(op))).map(_.storage)
}
