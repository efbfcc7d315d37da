package org.apache.spark.sql.execution.streaming.state.binshift.checkpoint

import java.io.FileNotFoundException
import java.nio.charset.StandardCharsets

import org.apache.hadoop.fs.Path
import org.json4s.{DefaultFormats, Formats, JNothing, JValue}
import org.json4s.jackson.JsonMethods

import org.apache.spark.sql.execution.streaming.operators.stateful.join.StreamingSymmetricHashJoinHelper.{LeftSide, RightSide}
import org.apache.spark.sql.execution.streaming.state.binshift.BinshiftException
import org.apache.spark.sql.execution.streaming.operators.stateful.join.SymmetricHashJoinStateManager
import org.apache.spark.sql.execution.streaming.state.StateStoreId

/**
 * Under checkpoint format 2, the ids with which the stores of each partition were committed. The names of their files end in these
 * ids, so that of two attempts only the committed one is ever read.
 *
 * @param ids by operator, partition and store
 */
private[binshift] final class CheckpointIds(ids: Map[Long, Seq[Seq[String]]]) {

  def of(store: StateStoreId): String = {
    ids.get(store.operatorId).flatMap(_.lift(store.partitionId)).flatMap(
      _.lift(CheckpointIds.position(store.storeName))).getOrElse(
      throw BinshiftException("CHECKPOINT_ID_MISSING").migration(
        s"the commit log has no checkpoint id of $store; the checkpoint changed its format since the " +
          "last batch; let the query run a batch before it is rescaled"))
  }
}

private[sql] object CheckpointIds {
  /** Stands for the id of a partition that did not exist at the version that is loaded. */
  val NewPartition = "binshift-new-partition"

  /** Joins of the older state formats list the ids of their stores in this order. */
  private val JoinStores = SymmetricHashJoinStateManager.allStateStoreNames(LeftSide, RightSide)

  /** The position of a store's id among the ids of its operator's partition. */
  def position(storeName: String): Int = math.max(0, JoinStores.indexOf(storeName))

  /**
   * Reads the ids of `version` from the commit log. If Spark has purged that entry, reads the copy that was kept because bins moved at
   * `version`.
   */
  private[binshift] def read(dir: ControlDir, version: Long): CheckpointIds = {
    val ids = committed(dir, version).orElse(dir.read(kept(version))).getOrElse(
      throw BinshiftException("CHECKPOINT_DAMAGED").configuration(
        s"neither commits/${version - 1} nor binshift/${kept(version)} is in the checkpoint; restore one of them"))
    ControlDir.understood(new Path(dir.path, kept(version))) {
      implicit val formats: Formats = DefaultFormats
      new CheckpointIds(ids.extractOpt[Map[String, Seq[Seq[String]]]].getOrElse(Map.empty)
          .map { case (operator, partitions) => operator.toLong -> partitions })
    }
  }

  /** Keeps a copy of the ids of `version`, which is deleted together with the routing entry of the switch at that version. */
  def keep(dir: ControlDir, version: Long): Unit =
    committed(dir, version).filter(_ != JNothing).foreach(dir.write(kept(version), _))

  def forget(dir: ControlDir, version: Long): Unit = dir.delete(kept(version))

  private def kept(version: Long): String = s"ids/$version"

  /**
   * Relies on Spark: the commit log has a file per batch, the first line of which is its format and
   * the second a JSON object with the ids; batch `version - 1` is committed before the next is run.
   */
  private def committed(dir: ControlDir, version: Long): Option[JValue] =
    try {
      val file = new Path(new Path(dir.path.getParent, "commits"), (version - 1).toString)
      val in = file.getFileSystem(dir.hadoopConf).open(file)
      val lines =
        try new String(in.readAllBytes(), StandardCharsets.UTF_8).linesIterator.toSeq
        finally in.close()
      Some(ControlDir.understood(file)(JsonMethods.parse(lines.lift(1).getOrElse("{}")) \ "stateUniqueIds"))
    } catch {
      case _: FileNotFoundException => None
    }
}
