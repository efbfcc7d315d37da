package org.apache.spark.sql.execution.streaming.state.binshift.provider

import java.util.concurrent.CountDownLatch

import scala.collection.mutable
import scala.util.Try

import org.apache.spark.sql.execution.streaming.state.{StateStoreIterator, UnsafeRowPair}

/** A scan of rows without a store that waits when it is read; each method returns the events in their order. */
object TestWaitingScan {
  private final class Log {
    private val words = mutable.ArrayBuffer.empty[String]

    def apply(word: String): Unit = synchronized {
      words += word
      ()
    }

    def scan(rows: Int = 2, waitAll: () => Unit = () => ()): WaitingScan = new WaitingScan(
      () => {
        apply("open")
        new StateStoreIterator(Iterator.fill(rows)(new UnsafeRowPair()), () => apply("close"))
      },
      () => {
        apply("wait")
        waitAll()
      })

    override def toString: String = synchronized(words.mkString(" "))
  }

  def read(): String = {
    val log = new Log
    val scan = log.scan()
    scan.foreach(_ => log("row"))
    scan.close()
    log.toString
  }

  def closedUnread(): String = {
    val log = new Log
    val scan = log.scan()
    scan.close()
    if (Try(scan.hasNext).isFailure) log("fails")
    log.toString
  }

  def closedWhileItWaits(): String = {
    val log = new Log
    val (waits, closed) = (new CountDownLatch(1), new CountDownLatch(1))
    val scan = log.scan(waitAll = () => {
      waits.countDown()
      closed.await()
    })
    val reader = new Thread(() => if (Try(scan.hasNext).isFailure) log("fails"))
    reader.start()
    waits.await()
    scan.close()
    closed.countDown()
    reader.join()
    log.toString
  }

  def readAfterTheStoreIsCommitted(): String = {
    val log = new Log
    val scan = new WaitingScan(() => throw new IllegalStateException("committed"), () => log("wait"))
    if (Try(scan.hasNext).isFailure) log("fails")
    log.toString
  }
}
