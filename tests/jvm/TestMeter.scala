package org.apache.spark.sql.execution.streaming.state.binshift

import org.apache.spark.sql.execution.streaming.state.binshift.shipping.{CopyPace, Meter, ShippingThreads}

/** A meter with a clock that only goes on while a thread waits. */
object TestMeter {
  def open(): TestMeter = new TestMeter

  /** The bytes that this executor has copied in the background. */
  def copiedBytes(): Long = ShippingThreads.copiedBytes.get
}

final class TestMeter {
  private var now = 0L
  private val meter = new Meter(() => now, now += _)

  /** Reads pieces one after the other at a rate, as from a checkpoint; returns the nanoseconds. */
  def read(pieces: Int, bytes: Long, bytesPerSecond: Long): Long = {
    val begun = now
    for (_ <- 1 to pieces) {
      meter.charge(bytes, bytesPerSecond)
      meter.await(bytes, CopyPace.FirstRate)
    }
    now - begun
  }

  /** Counts bytes that came from elsewhere; returns the nanoseconds for which no more may come. */
  def receive(bytes: Long, bytesPerSecond: Long): Long = {
    meter.charge(bytes, bytesPerSecond)
    meter.waitNs
  }
}
