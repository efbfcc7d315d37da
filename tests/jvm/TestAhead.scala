package org.apache.spark.sql.execution.streaming.state.binshift.recovery

import java.util.concurrent.{ConcurrentLinkedQueue, CountDownLatch}

import scala.jdk.CollectionConverters._

/** Results that are made ahead, while the threads that make them are all taken. */
object TestAhead {

  /** What a reader gets of the jobs 0 to 9 while the jobs of four others hang; and what is released of those in the end. */
  def besideOthersThatHang(): Seq[Seq[Int]] = {
    val goOn = new CountDownLatch(1)
    val released = new ConcurrentLinkedQueue[Int]()
    val others = Seq.fill(4)(new Ahead[Int](Iterator.fill(4) { () =>
          goOn.await()
          1
        }, r => { released.add(r); () }))
    val reader = new Ahead[Int]((0 until 10).iterator.map(i => () => i), _ => ())
    val read = Iterator.continually(()).takeWhile(_ => reader.hasNext).map(_ => reader.next()).toSeq
    others.foreach(_.close())
    goOn.countDown()
    val deadline = System.nanoTime() + 60000000000L
    // Those that had not begun make nothing.
    while (released.size < 8 && System.nanoTime() < deadline) Thread.sleep(10)
    Seq(read, released.asScala.toSeq)
  }
}
