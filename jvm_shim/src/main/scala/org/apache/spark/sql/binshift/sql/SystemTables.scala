package org.apache.spark.sql.binshift.sql

import java.sql.Timestamp

import org.apache.spark.sql.Row
import org.apache.spark.sql.binshift.client.RunningQueries
import org.apache.spark.sql.binshift.query.{EachQuery, MigrationProgress, QueryRouter, QueryRouters}
import org.apache.spark.sql.classic.SparkSession
import org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution
import org.apache.spark.sql.types._

/** The tables of `binshift.system`. Columns that Python's tables have, too, have their names and meaning. */
private[sql] object SystemTables {
  private val OfQuery = new StructType().add("query_id", StringType, nullable = false).add("query", StringType)

  private val Queries = table("queries")(_.add("run_id", StringType, false).add("checkpoint", StringType, false)
      .add("epoch", LongType).add("bins", IntegerType).add("partitions", IntegerType).add("migration_id", StringType)
      .add("unanswered", StringType), silent = query => Seq(ofQuery(query, null, null, null, null, EachQuery.silence(query)))) {
    (query, router) =>
      val s = router.snapshot()
      val now = s.tables.current.map(_.table)
      Seq(ofQuery(query, s.planned.orNull, now.map(_.bins).orNull, now.map(_.partitions).orNull, s.migration.map(_.id).orNull,
          null))
  }

  private def ofQuery(query: MicroBatchExecution, more: Any*): Row =
    Row.fromSeq(Seq(query.runId.toString, query.resolvedCheckpointRoot) ++ more)

  private val Routing = table("routing")(_.add("epoch", LongType, false).add("bin", IntegerType, false)
      .add("partition", IntegerType, false)) { (_, router) =>
    router.now.tables.current.toSeq.flatMap(e => e.table.owners.indices.map(b => Row(e.epoch, b, e.table.owner(b))))
  }

  private val Stats = table("stats")(_.add("epoch", LongType, false).add("operator", LongType, false)
      .add("name", StringType, false).add("bin", IntegerType, false).add("partition", IntegerType, false)
      .add("executor", StringType).add("standby", StringType).add("standby_lag", LongType).add("keys", LongType).add("bytes",
        LongType).add("reads", LongType, false)
      .add("writes", LongType, false)) { (_, router) =>
    for {
      s <- router.statistics().toSeq
      o <- s.operators
      bin <- 0 until s.table.bins
    } yield {
      def sized(column: Array[Long]): Any = if (o.isSized) column(bin) else null
      val owner = s.table.owner(bin)
      Row(s.epoch, o.id, o.name, bin, owner, o.executors(owner).orNull,
        o.standby(owner).map(_._1).orNull, o.standby(owner).flatMap(_._2).orNull, sized(o.keys), sized(o.bytes), o.reads(bin),
        o.writes(bin))
    }
  }

  /** The history is read from the checkpoint, a request for each of some hundred entries. */
  private lazy val HistoryWaitMs = 10000L

  private val History = table("history", HistoryWaitMs)(_.add("epoch", LongType, false).add("partitions", IntegerType, false)
      .add("bins_moved", IntegerType, false).add("migration_id", StringType, false).add("strategy", StringType, false)
      .add("step", IntegerType, false).add("steps", IntegerType, false).add("written_at", TimestampType, false)) {
    (_, router) =>
      for { e <- router.history(); step <- e.step if !step.isOpening } yield Row(e.epoch, e.table.partitions, step.moves,
        step.migration, step.strategy, step.index + 1, step.steps, new Timestamp(e.writtenAtMs))
  }

  private val Migrations = table("migrations")(_.add("migration_id", StringType, false).add("state", StringType, false)
      .add("strategy", StringType).add("steps_done", IntegerType, false).add("steps_total", IntegerType)
      .add("next_epoch", LongType).add("earliest_epoch", LongType).add("committed_epoch", LongType, false)
      .add("bins_awaited", LongType).add("misplaced", IntegerType).add("stopped_because", StringType)) { (_, router) =>
    val s = router.snapshot()
    val known = s.outcomes.map(o => (o.id, o.strategy, o.total)) ++
      s.migration.map(m => (m.id, m.plan.strategy, m.plan.steps.size))
    // One of them may be forgotten meanwhile.
    for { (id, strategy, total) <- known; p <- MigrationProgress.find(router, id) } yield {
      Row(id, p.state, strategy, p.stepsDone, total, p.scheduledEpoch.orNull, p.earliestEpoch.orNull, p.committedEpoch,
        p.awaited.orNull, p.misplaced.orNull, p.stopped.map(_.why).orNull)
    }
  }

  val All: Map[String, SystemTable] = Seq(Queries, Routing, Stats, History, Migrations).map(t => t.name -> t).toMap

  /**
   * A table whose rows begin with the id and the name of a query.
   *
   * @param silent    the rows of a query whose checkpoint does not answer
   * @param maxWaitMs how long a query may take to answer
   */
  private def table(name: String, maxWaitMs: Long = EachQuery.MaxWaitMs)(
      columns: StructType => StructType, silent: MicroBatchExecution => Seq[Row] = _ => Nil)(
      rows: (MicroBatchExecution, QueryRouter) => Seq[Row]): SystemTable =
    new SystemTable(name, columns(OfQuery),
      (session: SparkSession) =>
        for {
          (query, told) <- RunningQueries.ask(session, name, maxWaitMs)(query => rows(query, QueryRouters.of(query)))
          row <- told.getOrElse(silent(query))
        } yield Row.fromSeq(Seq(query.id.toString, query.name) ++ row.toSeq))
}
