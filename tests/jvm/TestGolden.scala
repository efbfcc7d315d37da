package org.apache.spark.sql.binshift

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path
import org.json4s.JValue
import org.json4s.JsonDSL._
import org.json4s.jackson.JsonMethods.{compact, render}

import org.apache.spark.sql.binshift.migration.PlannedMigration
import org.apache.spark.sql.binshift.query.ServedRequests
import org.apache.spark.sql.binshift.retention.RunEnd
import org.apache.spark.sql.binshift.statistics.SavedStatistics
import org.apache.spark.sql.execution.streaming.state.binshift.checkpoint.{ChangedKeys, CheckpointIds, ControlDir, EntryName, Layout, RunHistory, Savepoints}
import org.apache.spark.sql.execution.streaming.state.binshift.routing.{RoutingLog, ShippingOrder}

/** The parsers and writers of the files of `binshift/`, without a query. */
object TestGolden {
  /** Reads a file, deletes it, and writes it again. */
  def rewrite(checkpoint: String, name: String): Unit = {
    val dir = dirOf(checkpoint)
    def again[T](read: T)(write: T => Unit): Unit = {
      dir.delete(name)
      write(read)
    }
    val log = new RoutingLog(dir)
    name.split('/') match {
      case Array("layout.json") => again(Layout.read(dir).get)(Layout.write(dir, _))
      case Array("runs", n) =>
        val before = new RunHistory(Seq(n.toLong - 1), _ => None, Nil)
        again(RunHistory.readClaim(dir, n.toLong).get)(RunHistory.claim(dir, before, _).foreach(claim =>
            require(claim == n.toLong)))
      case Array("ended.json") => again(RunEnd.read(dir).get)(_.write(dir))
      case Array("plans", _) => again(PlannedMigration.read(dir).head)(PlannedMigration.write(dir, _))
      case Array("served.json") => again(ServedRequests.read(dir))(ServedRequests.write(dir, _))
      case Array("shipping.json") => again(ShippingOrder.read(dir))(ShippingOrder.write(dir, _))
      case Array("statistics.json") => again(SavedStatistics.read(dir).get)(_.write(dir))
      case Array("routing", file) => again(log.read(EntryName.ofFile(file).get).get)(log.write)
      case Array("changed_keys", _) => again(ChangedKeys.read(dir).head)(ChangedKeys.write(dir, _))
      // Python writes them.
      case Array("savepoints", _) =>
        val kept = new Savepoints(dir).kept()
        def isKept(name: String) = kept.contains(new Path(dir.checkpoint, s"state/0/$name"))
        require(Seq("1/4.zip", "1/.4.zip.crc", "1/6.changelog.crc", "1/SSTs/000009-8f0b.sst").forall(isKept) && !isKept(
          "2/4.zip"))
      // They are copied from the log of commits.
      case Array("ids", version) => again(())(_ => CheckpointIds.keep(dir, version.toLong))
    }
  }

  /**
   * Reads files that older versions wrote: the name of an epoch's entry and of the one that it follows, and the runs, newest
   * first.
   */
  def old(checkpoint: String, epoch: Long): String = {
    val dir = dirOf(checkpoint)
    val entry = new RoutingLog(dir).read(EntryName(epoch, EntryName.Unknown)).get
    dir.numbers(RunHistory.Dir).foreach(n => dir.delete(s"${RunHistory.Dir}/$n"))
    text(("name" -> entry.name.render) ~ ("previous" -> entry.previous.map(_.file)) ~
      ("runs" -> RunHistory.read(dir).runs.map(r => (r.runId, r.began._2.render)).map { case (run, name) =>
        ("run" -> run) ~ ("routing" -> name)
      }))
  }

  /** The plan of the migration under way. */
  def plan(checkpoint: String): String = {
    val plan = PlannedMigration.read(dirOf(checkpoint)).head.plan
    text(("source" -> (("partitions" -> plan.source.partitions) ~ ("assignment" -> plan.source.assignment.toSeq))) ~
      ("steps" -> plan.steps.map { s =>
        ("partitions" -> s.partitions) ~ ("moves" -> s.moves.map(m => Seq(m.bin, m.source, m.target)))
      }) ~
      ("strategy" -> plan.strategy) ~ ("gap" -> plan.gap) ~ ("on_demand" -> plan.isOnDemand))
  }

  /** The statistics of each bin in the first store of `statistics.json`. */
  def statistics(checkpoint: String): String = {
    val store = SavedStatistics.read(dirOf(checkpoint)).get.stores.head
    text(("keys" -> store.keys.toSeq) ~ ("bytes" -> store.bytes.toSeq) ~ ("rows" -> store.rows.toSeq))
  }

  private def dirOf(checkpoint: String): ControlDir = ControlDir.of(new Path(checkpoint), new Configuration)

  private def text(json: JValue): String = compact(render(json))
}
