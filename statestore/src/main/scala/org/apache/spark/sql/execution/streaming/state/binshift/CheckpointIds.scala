package org.apache.spark.sql.execution.streaming.state.binshift

import java.nio.charset.StandardCharsets

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path
import org.json4s.{DefaultFormats, Formats}
import org.json4s.jackson.JsonMethods

import org.apache.spark.sql.execution.streaming.operators.stateful.join.StreamingSymmetricHashJoinHelper.{LeftSide, RightSide}
import org.apache.spark.sql.execution.streaming.operators.stateful.join.SymmetricHashJoinStateManager
import org.apache.spark.sql.execution.streaming.state.StateStoreId

/**
 * Under checkpoint format 2, the ids with which the stores of each partition were committed: the names
 * of their files end in them, so that of two attempts only the committed one is ever read.
 *
 * @param ids by operator, partition and store
 */
private[binshift] final class CheckpointIds(ids: Map[Long, Seq[Seq[String]]]) {

  def of(store: StateStoreId): String = {
    val position = math.max(0, CheckpointIds.JoinStores.indexOf(store.storeName))
    ids.get(store.operatorId).flatMap(_.lift(store.partitionId)).flatMap(_.lift(position)).getOrElse(
      throw BinshiftException.migration(
        s"the commit log has no checkpoint id of $store; the checkpoint changed its format since the " +
          "last batch; let the query run a batch before it is rescaled"))
  }
}

private[sql] object CheckpointIds {
  /** Stands for the id of a partition that did not exist at the version that is loaded. */
  val NewPartition = "binshift-new-partition"

  /** Joins of the older state formats list the ids of their stores in this order. */
  private val JoinStores = SymmetricHashJoinStateManager.allStateStoreNames(LeftSide, RightSide)

  /**
   * The ids of `version`.
   *
   * Relies on Spark: the commit log has a file per batch, the first line of which is its format and
   * the second a JSON object with the ids; batch `version - 1` is committed before the next is run.
   */
  private[binshift] def read(checkpoint: Path, version: Long, conf: Configuration): CheckpointIds = {
    implicit val formats: Formats = DefaultFormats
    val file = new Path(new Path(checkpoint, "commits"), (version - 1).toString)
    val in = file.getFileSystem(conf).open(file)
    val lines = try new String(in.readAllBytes(), StandardCharsets.UTF_8).linesIterator.toSeq finally in.close()
    val ids = JsonMethods.parse(lines.lift(1).getOrElse("{}")) \ "stateUniqueIds"
    new CheckpointIds(ids.extractOpt[Map[String, Seq[Seq[String]]]].getOrElse(Map.empty)
      .map { case (operator, partitions) => operator.toLong -> partitions })
  }
}
