package org.apache.spark.sql.execution.streaming.state.binshift

import java.util.concurrent.{CountDownLatch, TimeUnit}

import org.apache.spark.sql.execution.streaming.state.binshift.shipping.BlockFetch
import org.apache.spark.storage.{BlockManagerId, TestBlockId}

/** Fetches from named executors, some of which don't answer until they are told to. */
object TestFetches {
  def mostOfAnExecutor(): Int = BlockFetch.MostOfAnExecutor

  def open(): TestFetches = new TestFetches
}

final class TestFetches {
  private val answer = new CountDownLatch(1)
  private val late = new CountDownLatch(1)

  /** Asks an executor that does not answer; returns whether it was asked. */
  def isAskedInVain(executor: String): Boolean = begin(executor) {
    answer.await()
    Array.emptyByteArray
  }.exists(_.outcome.isEmpty)

  /** Asks an executor that answers; returns its answer, or nothing if it was not asked or has not answered yet. */
  def ask(executor: String, text: String): String =
    begin(executor)(text.getBytes).flatMap(_.outcome).fold("")(new String(_))

  /** Asks an executor that answers with an error; returns the message. */
  def askForError(executor: String, message: String): String =
    try begin(executor)(throw new java.io.IOException(message)).flatMap(_.outcome).fold("")(new String(_))
    catch { case e: java.io.IOException => e.getMessage }

  /** Waits for some seconds; returns whether an answer came for which nobody waited any more. */
  def isToldOfLateAnswer(seconds: Int): Boolean = late.await(seconds, TimeUnit.SECONDS)

  /** All executors answer from now on. */
  def close(): Unit = answer.countDown()

  private def begin(executor: String)(fetch: => Array[Byte]): Option[BlockFetch] =
    BlockFetch.begin(BlockManagerId(executor, "host", 1), TestBlockId("block"))(fetch)(late.countDown())
}
