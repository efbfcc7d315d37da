package org.apache.spark.sql.binshift.migration

import java.util.concurrent.atomic.AtomicInteger

import org.apache.hadoop.conf.Configuration

import org.apache.spark.sql.execution.streaming.state.binshift.shipping.{StandbyAnswer, StandbyConf, StandbyReport, StandbyStores}

/** A run of a query that wants no standbys, and counts how often it is asked. */
final class TestStandbyTurns(runId: String) extends StandbyListener {
  private val conf = StandbyConf(intervalMs = 100, maxBytes = 1, maxBytesPerSecond = 1, pieceBytes = 1)
  private val count = new AtomicInteger
  StandbyEndpoint.add(runId, this)

  override def answer(report: StandbyReport): Option[StandbyAnswer] = {
    count.incrementAndGet()
    Some(StandbyAnswer(0, None))
  }

  def begin(): Unit = StandbyStores.begin(runId, conf, new Configuration)

  def asked(): Int = count.get

  def close(): Unit = StandbyEndpoint.remove(runId)
}
