package org.apache.spark.sql.execution.streaming.state.binshift.checkpoint

import java.util.concurrent.{Callable, CyclicBarrier, Executors}

import scala.jdk.CollectionConverters._

import org.apache.hadoop.fs.Path

import org.apache.spark.sql.classic.SparkSession

/** Runs that claim the same place at once. */
object TestClaims {

  /** How many of `runs` have got each of so many places. */
  def race(session: SparkSession, checkpoint: String, runs: Int, places: Int): java.util.List[Int] = {
    val start = new CyclicBarrier(runs)
    val threads = Executors.newFixedThreadPool(runs)
    val claims = (1 to runs).map { run =>
      new Callable[Seq[Boolean]] {
        override def call(): Seq[Boolean] = {
          val dir = ControlDir.of(new Path(checkpoint), session.sessionState.newHadoopConf())
          (1 to places).map { place =>
            start.await()
            dir.create(s"${RunHistory.Dir}/$place", s"run $run")
          }
        }
      }
    }
    try threads.invokeAll(claims.asJava).asScala.map(_.get).toSeq.transpose.map(_.count(identity)).asJava
    finally threads.shutdown()
  }
}
